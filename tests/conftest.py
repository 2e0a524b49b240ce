"""Tiny corpora and models that several modules share; each is made once, by fairseq's own commands."""

import getpass
import os
import sys
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: everything here is too small for two threads
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("TEST_GPU", "")  # else the same on every machine
if capability := os.environ.get("ATEN_CPU_CAPABILITY"):  # which torch's cache of compiled code doesn't look at
    own = f"{tempfile.gettempdir()}/inductor-{getpass.getuser()}-{capability}"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", own)
os.environ.setdefault("PYTHONWARNINGS", "ignore")  # of what the tests start, in xdist's workers too
os.environ["PYTHON_BIN"] = sys.executable  # the scripts' Python, whether there is a .venv or not

import shutil  # noqa: E402
import signal  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402
from corpora import binarise, markov_sentences, write, write_pairs  # noqa: E402
from fairseq_commands import awaited, later, lm_training  # noqa: E402
from forked_python import forked_python  # noqa: E402

# random cases: the same ones and few of them; for a search of minutes, --hypothesis-profile fuzz
hypothesis.settings.register_profile("few", max_examples=25, derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("fuzz", max_examples=3000, deadline=None, database=None)
hypothesis.settings.load_profile("few")
# a shell's background jobs ignore Ctrl-C, and what they start too: the interrupted programs of the tests must not
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if config.getoption("numprocesses", None):
        forked_python()  # one for all workers


@pytest.fixture(scope="session")
def lm_data(tmp_path_factory):
    """A binarised monolingual corpus: 24 words with the special ones, 160 + 40 + 41 sentences."""
    folder = tmp_path_factory.mktemp("lm")
    for split, number in (("train", 160), ("valid", 40), ("test", 41)):
        write(folder / split, markov_sentences(number))
    return binarise(folder, "data-bin", "--only-source")


@pytest.fixture(scope="session")
def corpus(lm_data, tmp_path_factory):
    """The same under a name of its own, for tables."""
    folder = tmp_path_factory.mktemp("experiments") / "toy"
    shutil.copytree(lm_data, folder / "data-bin")
    (folder / "valid.parts").write_text("10\n30\n")
    return folder


@pytest.fixture(scope="session")
def mt_text(tmp_path_factory):
    """A parallel corpus: the German side is Markov sentences, the English side their translations."""
    folder = tmp_path_factory.mktemp("mt")
    for split, number in (("train", 160), ("valid", 22), ("test", 21)):
        write_pairs(folder, split, number)
    return folder


@pytest.fixture(scope="session")
def mt_data(mt_text):
    """The parallel corpus binarised, with a dictionary a side."""
    return binarise(mt_text, "data-bin", "--source-lang", "de", "--target-lang", "en")


@pytest.fixture(scope="session")
def mt_joined_data(mt_text):
    """The same with one dictionary for both sides."""
    return binarise(mt_text, "joined", "--source-lang", "de", "--target-lang", "en", "--joined-dictionary")


@pytest.fixture(scope="session")
def language_models(lm_data, tmp_path_factory):
    """Trainings of language models, queued."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("mixture", "stock", "transformer")}
    options = ("--kernels", "log", "--kernel-params", "log.p=1.5")
    trainings = {
        "mixture": lm_training(lm_data, folders["mixture"], "--kernels", "2xlin,log"),
        "stock": lm_training(lm_data, folders["stock"], arch="lstm_lm", criterion="cross_entropy"),
        "transformer": lm_training(lm_data, folders["transformer"], *options, arch="kernel_transformer_lm"),
    }
    return {name: (folders[name], later(*command)) for name, command in trainings.items()}


@pytest.fixture(scope="session")
def mixture_lm(language_models):
    """A trained LSTM language model of three components: its folder, and what training wrote."""
    return awaited(*language_models["mixture"])


@pytest.fixture(scope="session")
def stock_lm(language_models):
    """A trained stock ``lstm_lm``."""
    return awaited(*language_models["stock"])


@pytest.fixture(scope="session")
def transformer_lm(language_models):
    """A trained transformer language model of one kernel."""
    return awaited(*language_models["transformer"])
