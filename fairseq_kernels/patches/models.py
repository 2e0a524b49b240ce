"""A model's options fit its output layer."""

from fairseq.tasks import FairseqTask, LegacyFairseqTask

from ..models.output_layer_config import refuse_options_of_others
from . import replaces


@replaces(LegacyFairseqTask, "build_model")
@replaces(FairseqTask, "build_model")
def build_model(theirs, task, cfg, from_checkpoint=False):
    """fairseq accepts all options. It reads the file of pretrained vectors even when it loads a trained checkpoint.

    Lost: an option of another output layer was ignored. A checkpoint could not be loaded without the vectors' file.
    """
    if from_checkpoint:  # whose options older versions may have ignored
        for name in ("encoder_embed_path", "decoder_embed_path"):
            if getattr(cfg, name, None):
                setattr(cfg, name, None)
    else:
        refuse_options_of_others(cfg)
    task.from_checkpoint, task.output_layer_name = from_checkpoint, None
    try:
        return theirs(task, cfg, from_checkpoint)
    finally:
        task.from_checkpoint = False
