"""Loading what ``save_pretrained`` wrote, by transformers' AutoModels too."""

from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSpeechSeq2Seq,
    PreTrainedConfig,
    PreTrainedModel,
)

from .config import MODEL_TYPE, with_kernel_head_config
from .model import with_kernel_head

AUTO_MODELS = (AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq)


class SavedConfig(PreTrainedConfig):
    """What transformers finds under the model type of a saved folder: it becomes the host's."""

    model_type = MODEL_TYPE

    @classmethod
    def from_dict(cls, config_dict, **options):
        host = CONFIG_MAPPING[config_dict["host_model_type"]]
        own = with_kernel_head_config(host)
        for auto in AUTO_MODELS:
            if host in auto._model_mapping:
                auto.register(own, with_kernel_head(auto._model_mapping[host]), exist_ok=True)
        return own.from_dict(config_dict, **options)


AutoConfig.register(MODEL_TYPE, SavedConfig)


def from_pretrained(folder: str, **options) -> PreTrainedModel:
    """The model that ``save_pretrained`` wrote, in version 0.3, too; ``options`` are those of transformers'
    ``from_pretrained``."""
    config = AutoConfig.from_pretrained(folder)
    models = [auto._model_mapping[type(config)] for auto in AUTO_MODELS if type(config) in auto._model_mapping]
    model = next((model for model in models if model.__name__ in config.architectures), models[0])
    return with_kernel_head(getattr(model, "host", model)).from_pretrained(folder, config=config, **options)
