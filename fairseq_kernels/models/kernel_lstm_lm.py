"""fairseq's LSTM language model with a kernel output layer, trained through ``nn.LSTM``."""

from dataclasses import dataclass
from functools import partial
from typing import Optional

import torch
from fairseq import utils
from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqLanguageModel, register_model, register_model_architecture
from fairseq.models.lstm import DEFAULT_MAX_TARGET_POSITIONS, LSTM, Embedding, LSTMDecoder
from omegaconf import II
from torch import nn

from ..errors import mistake
from ..output_layers.table import option
from .continued_text import continue_text
from .kernel_model import KernelModel
from .output_layer_config import OutputLayerConfig, build_output_layer, set_defaults, with_defaults
from .sense_embedding import SenseEmbedding


@dataclass
class KernelLSTMLanguageModelConfig(OutputLayerConfig, FairseqDataclass):
    dropout: float = option(0.1, "dropout probability")
    decoder_embed_dim: int = option(512, "decoder embedding dimension")
    decoder_embed_path: Optional[str] = option(None, "path to pre-trained decoder embedding")
    decoder_hidden_size: Optional[int] = option(None, "decoder hidden size (default: the embedding dimension)")
    decoder_layers: int = option(1, "number of decoder layers")
    decoder_out_embed_dim: int = option(512, "decoder output embedding dimension")
    decoder_dropout_in: Optional[float] = option(
        None, "dropout probability for decoder input embedding (default: --dropout)"
    )
    decoder_dropout_out: Optional[float] = option(None, "dropout probability for decoder output (default: --dropout)")
    share_decoder_input_output_embed: bool = option(False, "share decoder input and output embeddings")
    kerbs_input: str = option(
        "separate",
        "input embeddings with --output-layer kerbs: separate; or of the sense vectors, weighted by the "
        "posterior of the word's senses (Eq. 6, step by step, slow) or by their prior (whole sequences)",
    )
    carry_state: bool = option(
        False,
        "go on from the state at the end of the last block, detached (truncated backpropagation), in "
        "training and evaluation: each row of a batch continues the text of that row in the last batch",
    )
    max_target_positions: Optional[int] = II("task.max_target_positions")


class KernelLSTMDecoder(LSTMDecoder):
    """The stock decoder without encoder and attention, its cells' loop replaced by ``nn.LSTM``: whole sequences in
    training, a call a step in decoding, on the same weights."""

    def __init__(self, dictionary, num_layers, **options):
        fixed = {"num_layers": 0, "attention": False, "encoder_output_units": 0}  # no cells
        super().__init__(dictionary, **options, **fixed, share_input_output_embed=True)  # no V x d fc_out
        self.num_layers = num_layers
        dropout = options["dropout_out"] if num_layers > 1 else 0.0
        self.lstm = LSTM(options["embed_dim"], options["hidden_size"], num_layers=num_layers, dropout=dropout)
        self.output_projection: Optional[nn.Module] = None  # set by the model, which may share embed_tokens with it
        self.embeds_by_context = False
        self.carried = {}  # the states at the end of the last batch, in training (True) and in evaluation (False)

    def forward(
        self, prev_output_tokens, encoder_out=None, incremental_state=None, src_lengths=None, features_only=False,
        continues=None,
    ):  # fmt: skip
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state, continues)
        return (features if features_only else self.output_layer(features)), extra

    def extract_features(self, prev_output_tokens, encoder_out=None, incremental_state=None, continues=None):
        """Context vectors (B, T, d); in decoding those of the last token, from the cached state.

        Args:
            continues: whether the rows go on where those of the last batch ended; None, without --carry-state: each
                begins anew, and its end is not kept.
        """
        state = previous = None
        if self.dropout_out_module.apply_during_inference:  # --retain-dropout, which nn.LSTM doesn't know
            self.lstm.train()
        if incremental_state:
            prev_output_tokens = prev_output_tokens[:, -1:]
            cached = self.get_incremental_state(incremental_state, "cached_state")
            state, previous = (cached["prev_hiddens"], cached["prev_cells"]), cached["input_feed"]
        elif continues and self.training in self.carried:  # not after resuming within an epoch
            hiddens, cells, previous = self.carried[self.training]
            rows = len(prev_output_tokens)  # the last batch of an epoch may have fewer
            state = hiddens[:, :rows].contiguous(), cells[:, :rows].contiguous()
            previous = None if previous is None else previous[:rows]
        if self.embeds_by_context:
            x, (hiddens, cells), feed = self.step_by_step(prev_output_tokens, previous, state)
        else:
            x = self.dropout_in_module(self.embed_tokens(prev_output_tokens))
            x, (hiddens, cells) = self.lstm(x.transpose(0, 1), state)
            x, feed = self.context_vectors(x), None
        if continues is not None:
            self.carried[self.training] = hiddens.detach(), cells.detach(), None if feed is None else feed.detach()
        cached = {"prev_hiddens": hiddens, "prev_cells": cells, "input_feed": feed}
        self.set_incremental_state(incremental_state, "cached_state", cached)
        return x.transpose(0, 1), None

    def context_vectors(self, x):
        x = self.dropout_out_module(x)
        return self.dropout_out_module(self.additional_fc(x)) if hasattr(self, "additional_fc") else x

    def step_by_step(self, tokens, previous, state):
        """Each word embedded by the context vector that predicted it (KerBS, Eq. 6); the first by its prior."""
        contexts = []
        for words in tokens.T:
            x = self.dropout_in_module(self.embed_tokens(words, previous)).unsqueeze(0)
            x, state = self.lstm(x, state)
            previous = self.context_vectors(x).squeeze(0)
            contexts.append(previous)
        return torch.stack(contexts), state, previous

    def output_layer(self, features):
        return self.output_projection(features)

    def upgrade_state_dict_named(self, state_dict, name):
        """Reads a stock ``lstm_lm``'s cells and output layer under our names."""
        super().upgrade_state_dict_named(state_dict, name)
        for key in [key for key in state_dict if key.startswith(f"{name}.layers.")]:
            layer, kind = key[len(f"{name}.layers.") :].split(".")
            state_dict[f"{name}.lstm.{kind}_l{layer}"] = state_dict.pop(key)
        for kind in ("weight", "bias"):
            stock = state_dict.pop(f"{name}.fc_out.{kind}", None)
            if stock is not None and getattr(self.output_projection, kind) is not None:
                state_dict[f"{name}.output_projection.{kind}"] = stock
        embedding = state_dict.get(f"{name}.embed_tokens.weight")
        shared = not any(key.startswith(f"{name}.output_projection.") for key in state_dict)  # in a stock model
        if shared and embedding is not None and embedding.shape == self.output_projection.weight.shape:
            state_dict[f"{name}.output_projection.weight"] = embedding


@register_model("kernel_lstm_lm", dataclass=KernelLSTMLanguageModelConfig)
class KernelLSTMLanguageModel(KernelModel, FairseqLanguageModel):
    """LSTM language model whose softmax layer has kernels (Gao et al. 2019, section 4)."""

    @classmethod
    def build_model(cls, cfg, task):
        """Build a new model instance."""
        cfg = with_defaults(cfg, cls.options())
        check_config(cfg)
        dictionary, embedding = task.source_dictionary, None  # larger with --output-dictionary-size
        if cfg.decoder_embed_path:
            embedding = Embedding(len(dictionary), cfg.decoder_embed_dim, dictionary.pad())
            vectors = utils.parse_embedding(cfg.decoder_embed_path)
            utils.print_embed_overlap(vectors, dictionary)
            utils.load_embedding(vectors, dictionary, embedding)
        decoder = KernelLSTMDecoder(
            dictionary, cfg.decoder_layers, embed_dim=cfg.decoder_embed_dim, out_embed_dim=cfg.decoder_out_embed_dim,
            hidden_size=cfg.decoder_hidden_size or cfg.decoder_embed_dim, pretrained_embed=embedding,
            dropout_in=cfg.dropout if cfg.decoder_dropout_in is None else cfg.decoder_dropout_in,
            dropout_out=cfg.dropout if cfg.decoder_dropout_out is None else cfg.decoder_dropout_out,
            max_target_positions=cfg.max_target_positions or DEFAULT_MAX_TARGET_POSITIONS,
        )  # fmt: skip
        shared = decoder.embed_tokens if cfg.share_decoder_input_output_embed else None
        start = partial(nn.init.uniform_, a=-0.1, b=0.1)  # as the stock LSTM's fc_out
        layer = build_output_layer(cfg, task, cfg.decoder_out_embed_dim, shared, start=start)
        decoder.output_projection = layer
        if cfg.kerbs_input != "separate":
            decoder.embed_tokens = SenseEmbedding(layer, dictionary.pad())
            decoder.embeds_by_context = cfg.kerbs_input == "posterior"
        if cfg.carry_state:
            continue_text(task)
        return cls(decoder)


def check_config(cfg) -> None:
    """Checks ``--kerbs-input``."""
    if cfg.kerbs_input not in ("separate", "prior", "posterior"):
        raise mistake(f"--kerbs-input {cfg.kerbs_input} is not allowed: choose separate, prior or posterior")
    if cfg.kerbs_input != "separate":
        if cfg.output_layer != "kerbs":
            raise mistake(f"--kerbs-input {cfg.kerbs_input} needs --output-layer kerbs")
        if cfg.decoder_embed_dim != cfg.decoder_out_embed_dim:
            sizes = f"{cfg.decoder_embed_dim} and {cfg.decoder_out_embed_dim}"
            raise mistake(f"--kerbs-input needs --decoder-embed-dim and --decoder-out-embed-dim equal, not {sizes}")


@register_model_architecture("kernel_lstm_lm", "kernel_lstm_lm_swb")
def kernel_lstm_lm_swb(args):
    """Switchboard in Gao et al. (2019, section 4.1): 2 layers of 512, dropout 0.1 on the embedded words only."""
    set_defaults(args, dropout=0.0, decoder_dropout_in=0.1, decoder_dropout_out=0.0)
    set_defaults(args, decoder_embed_dim=512, decoder_hidden_size=512, decoder_out_embed_dim=512, decoder_layers=2)
