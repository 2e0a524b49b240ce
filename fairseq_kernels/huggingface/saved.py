"""Loading what ``save_pretrained`` wrote, by transformers' AutoModels too."""

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel

from .config import MODEL_TYPE
from .model import registered_config, with_kernel_head


class SavedConfig(PreTrainedConfig):
    """What transformers finds under the model type of a saved folder: it becomes the host's."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict, **options):
        return registered_config(CONFIG_MAPPING[config_dict["host_model_type"]]).from_dict(config_dict, **options)


AutoConfig.register(MODEL_TYPE, SavedConfig)


def from_pretrained(folder: str, **options) -> PreTrainedModel:
    """The model that ``save_pretrained`` wrote, in version 0.3, too; ``options`` are those of transformers'
    ``from_pretrained``."""
    config = AutoConfig.from_pretrained(folder)
    host = getattr(transformers, config.architectures[0])
    return with_kernel_head(host).from_pretrained(folder, config=config, **options)
