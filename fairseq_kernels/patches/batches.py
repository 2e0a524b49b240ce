"""Evaluation, validation and generation take every sentence, whatever the size of the last batch."""

from fairseq.data import data_utils
from fairseq.scoring.bleu import Scorer
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask

from ..errors import TOO_LONG, mistake
from . import replaces


@replaces(FairseqTask, "get_batch_iterator", issue=5036)
def get_batch_iterator(theirs, task, dataset, *args, required_batch_size_multiple=1, **options):
    """fairseq leaves out the last sentences, up to seven, where their number is no multiple of eight.

    Lost: of 60 sentences 56 were translated and scored, of five none.
    """
    in_training = "grouped_shuffling" in options  # which fairseq gives for its training batches alone
    multiple = required_batch_size_multiple if in_training else 1
    return theirs(task, dataset, *args, required_batch_size_multiple=multiple, **options)


@replaces(LanguageModelingTask, "eval_lm_dataloader")
def eval_lm_dataloader(theirs, task, dataset, *args, max_positions=None, **options):
    """fairseq leaves out blocks that are longer than the model takes.

    Lost: the perplexity was that of the last, short block alone, for instance.
    """
    if max_positions is not None:  # an error, where there are some
        task.filter_indices_by_size(dataset.ordered_indices(), dataset, max_positions)
    return theirs(task, dataset, *args, max_positions=max_positions, **options)


@replaces(data_utils, "batch_by_size")
def batch_by_size(theirs, indices, *args, required_batch_size_multiple=1, **options):
    """fairseq fails with an IndexError if no sentence is short enough. It drops all sentences if they are under eight.

    Lost: the error did not say why. Training sets of fewer than eight sentences could not be used.
    """
    if len(indices) == 0:
        raise mistake(TOO_LONG)
    batches = theirs(indices, *args, required_batch_size_multiple=required_batch_size_multiple, **options)
    return batches if len(batches) else theirs(indices, *args, required_batch_size_multiple=1, **options)


@replaces(Scorer, "brevity")
def brevity(theirs, scorer) -> float:
    """fairseq divides by the number of words in all translations, which may be none.

    Lost: an evaluation whose translations were all empty ended with a ZeroDivisionError in the place of BLEU 0.
    """
    return theirs(scorer) if scorer.stat.predlen else 0.0
