"""Loading what ``save_pretrained`` wrote, by transformers' AutoModels too."""

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from .config import MODEL_TYPE, with_kernel_head_config
from .model import with_kernel_head

AUTO_MODELS = [auto for auto in vars(modeling_auto).values() if hasattr(auto, "from_pretrained")]


class SavedConfig(PreTrainedConfig):
    """What transformers finds under the model type of a saved folder: it becomes the host's."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict, **options):
        host = CONFIG_MAPPING[config_dict["host_model_type"]]
        own = with_kernel_head_config(host)
        for auto in AUTO_MODELS:
            model = (auto._model_mapping or {}).get(host, None)  # the base class has none
            if isinstance(model, type) and model.can_generate():
                auto.register(own, with_kernel_head(model), exist_ok=True)
        return own.from_dict(config_dict, **options)


AutoConfig.register(MODEL_TYPE, SavedConfig)


def from_pretrained(folder: str, **options) -> PreTrainedModel:
    """The model that ``save_pretrained`` wrote, in version 0.3, too; ``options`` are those of transformers'
    ``from_pretrained``."""
    config = AutoConfig.from_pretrained(folder)
    host = getattr(transformers, config.architectures[0])
    return with_kernel_head(host).from_pretrained(folder, config=config, **options)
