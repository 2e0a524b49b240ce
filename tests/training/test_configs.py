"""The profiles in configs/ train, by fairseq-hydra-train as their heads say."""

import shlex
from pathlib import Path

import pytest
from fairseq_commands import USER_DIR, fairseq
from omegaconf import OmegaConf

CONFIGS = USER_DIR.parent / "configs"
TINY = {
    "lm": [f"model.decoder_{size}=8" for size in ("embed_dim", "hidden_size", "out_embed_dim")],
    "mt": [
        f"model.{side}_{size}"
        for side in ("encoder", "decoder")
        for size in ("embed_dim=8", "ffn_embed_dim=8", "attention_heads=2", "layers=1")
    ],
}
PROFILES = sorted(path for kind in TINY for path in CONFIGS.glob(f"{kind}/*.yaml"))


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
    settings += ["common.cpu=true", "optimization.max_update=2", f"hydra.run.dir={tmp_path}/run", *TINY[kind]]
    fairseq("hydra_train", *settings, *folder, cwd=tmp_path)
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()


def test_the_learning_rate_falls_to_the_end():
    profiles = [OmegaConf.load(path) for path in PROFILES]
    falling = [each for each in profiles if each.lr_scheduler._name == "polynomial_decay"]
    assert falling and all(each.lr_scheduler.total_num_update == each.optimization.max_update for each in falling)
