"""Adam in one pass over parameters, gradients and moments: ``--optimizer fused_adamw``."""

import torch
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig

from ..errors import mistake


@register_optimizer("fused_adamw", dataclass=FairseqAdamConfig)
class FusedAdamW(FairseqAdam):
    """``torch.optim.AdamW(fused=True)`` with ``--adam-betas``, ``--adam-eps`` and ``--weight-decay`` of fairseq's
    ``adam``, on the CPU and on GPUs.

    Weight decay is decoupled, as in fairseq's (Loshchilov & Hutter 2019). The difference is where epsilon is added to
    the root of the second moment: here after the bias correction (Kingma & Ba 2015, Algorithm 1), in fairseq's before.
    """

    def __init__(self, cfg, params):
        FairseqOptimizer.__init__(self, cfg)
        for option in ("fp16_adam_stats", "use_old_adam"):
            if getattr(cfg, option, False):
                raise mistake(f"--{option.replace('_', '-')} works only with --optimizer adam; leave it out")
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def supports_flat_params(self) -> bool:
        """Its steps are element-wise, so that ``--fp16`` may hold all parameters in one vector."""
        return True
