"""The preparations run without the plugin, which other tests have loaded into this process."""

import pytest
from fairseq.data import Dictionary

from fairseq_kernels import data_files


@pytest.fixture(autouse=True)
def fairseq_as_it_is(monkeypatch):
    monkeypatch.setattr(Dictionary, "add_from_file", data_files.fairseq_dictionary)
