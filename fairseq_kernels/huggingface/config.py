"""The configuration of a model with a kernel head, which is saved under a model type of its own."""

import functools
import json
from typing import Type

from transformers import PreTrainedConfig

MODEL_TYPE = "fairseq_kernels"


@functools.cache
def with_kernel_head_config(host: Type[PreTrainedConfig]) -> Type[PreTrainedConfig]:
    """A configuration's subclass, of the same name, that is saved under the model type ``fairseq_kernels``."""

    class WithKernelHeadConfig(host):
        def to_json_string(self, use_diff: bool = True) -> str:
            values = json.loads(super().to_json_string(use_diff))
            values.update(host_model_type=self.model_type, model_type=MODEL_TYPE)
            return json.dumps(values, indent=2, sort_keys=True) + "\n"

        @classmethod
        def from_dict(cls, config_dict, **options):
            config_dict["model_type"] = config_dict.pop("host_model_type", host.model_type)
            return super().from_dict(config_dict, **options)

    WithKernelHeadConfig.__module__ = __package__
    WithKernelHeadConfig.__name__ = WithKernelHeadConfig.__qualname__ = host.__name__
    return WithKernelHeadConfig
