"""The YAML files in configs/ train, by fairseq-hydra-train as their heads say."""

from pathlib import Path

import pytest
from fairseq_commands import USER_DIR, fairseq

CONFIGS = USER_DIR.parent / "configs"
TINY = {
    "lm": [f"model.decoder_{size}=8" for size in ("embed_dim", "hidden_size", "out_embed_dim")],
    "mt": [
        f"model.{side}_{size}"
        for side in ("encoder", "decoder")
        for size in ("embed_dim=8", "ffn_embed_dim=8", "attention_heads=2", "layers=1")
    ],
}


EXPERIMENTS = sorted(path for kind in TINY for path in CONFIGS.glob(f"{kind}/*.yaml"))


@pytest.mark.parametrize("config", EXPERIMENTS, ids=lambda path: path.stem)
def test_config_trains(config: Path, request, tmp_path):
    """Two updates of a small model on the tests' corpus."""
    kind = config.parent.name
    data = request.getfixturevalue("lm_data" if kind == "lm" else "mt_data")
    options = [f"common.user_dir={USER_DIR}", f"task.data={data}", "common.cpu=true", "optimization.max_update=2"]
    options += [f"checkpoint.save_dir={tmp_path}/checkpoints", f"hydra.run.dir={tmp_path}/run"]
    fairseq(
        "hydra_train", *options, *TINY[kind], "--config-dir", config.parent, "--config-name", config.stem, cwd=tmp_path
    )
    assert (tmp_path / "checkpoints" / "checkpoint_last.pt").exists()
