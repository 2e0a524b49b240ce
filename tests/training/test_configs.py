"""The profiles in configs/ train, by fairseq-hydra-train as their heads say; published records tell their settings."""

import shlex
from pathlib import Path

import pytest
from fairseq import options
from fairseq_commands import USER_DIR, fairseq

import fairseq_kernels.fairseq_plugin  # noqa: F401  (whatever was imported first)
from fairseq_kernels.experiments.profiles import training_settings
from fairseq_kernels.experiments.tables import words_of

CONFIGS = USER_DIR.parent / "configs"
TINY = {
    "lstm": [f"model.decoder_{size}=8" for size in ("embed_dim", "hidden_size", "out_embed_dim")],
    "transformer": [f"model.decoder_{size}=8" for size in ("embed_dim", "input_dim", "output_dim", "ffn_embed_dim")],
    "mt": [f"model.{side}_{size}" for side in ("encoder", "decoder")
           for size in ("embed_dim=8", "ffn_embed_dim=8", "attention_heads=2", "layers=1")],
}  # fmt: skip
PROFILES = sorted(path for kind in ("lm", "mt") for path in CONFIGS.glob(f"{kind}/*.yaml"))


@pytest.fixture(scope="module")
def configs():
    """What the commands at the profiles' heads call."""
    return fairseq("kernels", "--configs").out.strip()


@pytest.mark.parametrize("config", PROFILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_profile_trains(config: Path, configs, request, tmp_path):
    """Two updates of a small model on the tests' corpus, with the command at its head."""
    kind = config.parent.name
    data = request.getfixturevalue("lm_data" if kind == "lm" else "mt_data")
    head = [line[1:] for line in config.read_text().splitlines() if line.startswith("#   ")]
    program, *words = shlex.split("\n".join(head).replace("\\\n", " "))
    assert program == "fairseq-hydra-train"
    own = {"common.user_dir": USER_DIR, "task.data": data, "checkpoint.save_dir": tmp_path / "checkpoints"}
    words = [f"{name}={own[name]}" if (name := word.partition("=")[0]) in own else word for word in words]
    settings, folder = words[: words.index("--config-dir")], words[words.index("--config-dir") :]
    folder[1] = folder[1].replace("$(python -m fairseq_kernels --configs)", configs)
    tiny = TINY["mt" if kind == "mt" else "transformer" if config.stem == "transformer" else "lstm"]
    settings += ["common.cpu=true", "optimization.max_update=2", f"hydra.run.dir={tmp_path}/run", *tiny]
    fairseq("hydra_train", *settings, *folder, cwd=tmp_path)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()


def test_the_paper_s_translation_is_fairseq_s_recipe():
    """That of examples/translation/README.md for IWSLT'14, but for the optimizer; no record has it."""
    recipe = """--arch transformer_iwslt_de_en --share-decoder-input-output-embed --optimizer fused_adamw --clip-norm 0
        --adam-betas (0.9,0.98) --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 --dropout 0.3 --max-epoch 50
        --weight-decay 0.0001 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 4096"""
    ours = words_of(training_settings("mt", "paper", {"stock": True, "adam_betas": "(0.9,0.98)"}))
    one, other = (vars(options.parse_args_and_arch(options.get_training_parser(), ["DATA", *words]))
                  for words in (ours, recipe.split()))  # fmt: skip
    assert {name: value for name, value in one.items() if value != other[name]} == {
        "log_interval": 25, "log_format": "simple", "save_interval_updates": 500, "keep_interval_updates": 1,
        "no_epoch_checkpoints": True, "required_batch_size_multiple": 1, "update_epoch_batch_itr": "True",
    }  # fmt: skip


def test_what_published_records_override():
    """medium is trained as cpu; paper to the sixth epoch that halves the learning rate."""
    cpu, medium, paper = (training_settings("lm", name, {}) for name in ("cpu", "medium", "paper"))
    sizes = {f"decoder_{size}" for size in ("embed_dim", "hidden_size", "out_embed_dim")}
    assert {name for name in {**cpu, **medium} if cpu.get(name) != medium.get(name)} == {*sizes, "log_interval"}
    lr, shrink, least = (float(paper[name]) for name in ("lr", "lr_shrink", "stop_min_lr"))
    assert lr * shrink**6 < least < lr * shrink**5 and paper["max_epoch"] == "30"
