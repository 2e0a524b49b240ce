import shutil

import pytest


@pytest.fixture(scope="module")
def corpus(lm_data, tmp_path_factory):
    """The tests' corpus under a name of its own."""
    folder = tmp_path_factory.mktemp("experiments") / "toy"
    shutil.copytree(lm_data, folder / "data-bin")
    return folder
