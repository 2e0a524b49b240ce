#!/usr/bin/env bash
# Makes .venv with what the package, the quickstart, trainings, tables, searches and tests need. Documents and examples
# need more: .venv/bin/python -m pip install -e '.[docs,examples]'
#
#   bash scripts/setup.sh
#   PYTHON=python3.12 TORCH='torch==2.13.0' bash scripts/setup.sh     another interpreter, another torch
#
# PYTHON      Python 3.10 to 3.13; default: that of a finished .venv, else python3
# TORCH       what pip installs as torch unless .venv's satisfies it; default: torch, the newest
# PYTHON_BIN  a Python that has fairseq and torch: it is used as it is, by the other scripts too; nothing is installed
#
# All but torch and fairseq comes in the versions of constraints.txt. Where there is uv, it installs all but torch.
# fairseq-fixed 0.12.3.1 is compiled, which needs a C++ compiler; on x86-64 Linux Python 3.12 has a ready wheel. What
# takes minutes to compile and serves nothing here is left out: libbase (BASE layers), libnat (non-autoregressive
# translation), alignment_train_cpu_binding (simultaneous translation), CUDA extensions, and torchaudio (speech).
# A fairseq-fixed that .venv already has stays as it is.
#
# A second call installs nothing. After an interruption, call again: what is done is not done again.
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

VENV=$ROOT/.venv
PY=$VENV/bin/python
stamp=$VENV/.fairseq_kernels-setup  # written when all is installed: what .venv was made from, and TORCH
# a finished .venv keeps its Python where none is named
if [ -z "${PYTHON:-}" ] && [ -f "$stamp" ] && [ -x "$PY" ]; then PYTHON=$PY; fi
PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch}
case "${1:-}" in
    "") ;;
    -h | --help) usage; exit 0 ;;
    *) die "unknown argument '$1'; setup.sh takes none: set PYTHON and TORCH instead (--help explains)" ;;
esac
if [ -n "${PYTHON_BIN:-}" ]; then
    find_python fairseq torch
    reason=$("$PY" -W ignore -c 'import fairseq, torch' 2>&1) || die "$PY can't import fairseq and torch" \
        "($(tail -n 1 <<<"$reason")); repair it, or unset PYTHON_BIN to have .venv made"
    echo "setup.sh: PYTHON_BIN=$PY is used as it is"
    exit 0
fi

minor_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
command -v "$PYTHON" >/dev/null \
    || die "PYTHON=$PYTHON not found; install Python 3.10 to 3.13 or name another, as in PYTHON=python3.12"
version=$(minor_version "$PYTHON") || die "PYTHON=$PYTHON doesn't run"
case $version in
    3.10 | 3.11 | 3.12 | 3.13) ;;
    3.14) die "$PYTHON is Python 3.14, on which fairseq's hydra-core 1.3.2 fails; use PYTHON=python3.12, say" ;;
    *) die "$PYTHON is Python $version; 3.10 to 3.13 are supported: name another, as in PYTHON=python3.12" ;;
esac

# has REQUIREMENT: .venv satisfies it. An address or a file's name is no requirement.
has() {
    "$PY" - "$1" 2>/dev/null <<'EOF'
import sys
from importlib.metadata import version
from packaging.requirements import Requirement

requirement = Requirement(sys.argv[1])
sys.exit(requirement.url is not None or not requirement.specifier.contains(version(requirement.name), prereleases=True))
EOF
}

made_from="$version $(cat setup.py constraints.txt | cksum)"
if [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$made_from" ] \
    && { [ "$(sed -n 2p "$stamp")" = "$TORCH" ] || has "$TORCH"; }; then
    echo "setup.sh: $VENV is ready (Python $version)"
    exit 0
fi

"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null \
    || die "$PYTHON has no venv module; install it (on Debian: apt-get install python3-venv) and call again"
if [ "$version $(uname -sm)" != "3.12 Linux x86_64" ]; then  # fairseq-fixed's only wheel but Windows'
    command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null \
        || die "no C++ compiler, which fairseq needs; install one (on Debian: apt-get install g++)"
    headers=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    [ -f "$headers/Python.h" ] \
        || die "no Python.h, which fairseq needs; install the headers (on Debian: apt-get install python3-dev)"
fi
free=$(df -Pk "$ROOT" | awk 'NR == 2 {print int($4 / 1048576)}')
need=8; [[ $TORCH == *cpu* ]] && need=3
if [ ! -d "$VENV" ] && [ "$free" -lt "$need" ] && [ -z "${SKIP_DISK_CHECK:-}" ]; then
    die "only $free GiB free in $ROOT, torch may need $need; free some space, or set SKIP_DISK_CHECK=1 to try it anyway"
fi

log=$ROOT/.venv.log
: >"$log" || die "can't write $log; call from a clone that you may write to"
trap 'kill -- $(jobs -p | sed s/^/-/) 2>/dev/null || true; echo; echo "setup.sh: interrupted; call again to go on" >&2; exit 130' INT TERM
step() {
    local title=$1 start=$SECONDS; shift
    printf 'setup.sh: %s ... ' "$title"
    "$@" >>"$log" 2>&1 || { echo; tail -n 5 "$log" >&2; die "$title failed; the whole log is in $log"; }
    echo "$((SECONDS - start)) s"
}

# background COMMAND...: in a process group of its own, which the trap ends whole
background() {
    set -m
    "$@" </dev/null &
    set +m
}

FAIRSEQ=fairseq-fixed==0.12.3.1
wheels=$VENV/wheels

# Builds fairseq's wheel beside the other installations: without the extensions that are left out it needs no torch, but
# its setup.py imports one.
build_fairseq() {
    local source
    rm -rf "$wheels"
    mkdir -p "$wheels/torch/utils" && touch "$wheels/torch/__init__.py" "$wheels/torch/utils/__init__.py"
    echo 'from setuptools import Extension as CppExtension
from setuptools.command.build_ext import build_ext as BuildExtension' >"$wheels/torch/utils/cpp_extension.py"
    export PYTHONPATH=$wheels
    unset CUDA_HOME
    "$PY" -m pip download --no-deps --no-build-isolation --dest "$wheels" "$FAIRSEQ" || return
    source=$(cd "$wheels" && echo fairseq*)
    if [[ $source == *.tar.gz ]]; then  # no wheel for this Python
        tar -xzf "$wheels/$source" -C "$wheels" || return
        source=$wheels/${source%.tar.gz}
        # this release's second list of extensions is the torch ones
        sed '/^extensions\.extend(/,/^)/d; /"torchaudio/d' "$source/setup.py" >"$wheels/setup.py" || return
        mv "$wheels/setup.py" "$source"
        printf '[build_ext]\nparallel = 4\n' >>"$source/setup.cfg"
        "$PY" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$wheels" "$source"
    fi
}

# Installs the package, and what it and its recipes need but for torch and fairseq.
install_package() {
    pip_install --no-deps -e . && "$PY" -c '
from importlib.metadata import requires
from packaging.requirements import Requirement

for line in map(Requirement, requires("fairseq_kernels")):
    if line.marker and any(line.marker.evaluate({"extra": extra}) for extra in ("recipes", "tables", "search", "test")):
        line.marker = None
        print(line)
' >"$VENV/requirements.txt" && pip_install -r "$VENV/requirements.txt"
}

install_fairseq() {
    wait "$building" || { cat "$VENV/fairseq.log"; return 1; }
    pip_install --find-links "$wheels" --only-binary fairseq-fixed "$FAIRSEQ" && rm -r "$wheels"
}

# first_import MODULE...: shows that they are there, and leaves their bytecode, without which every command takes seconds
# longer to start.
first_import() {
    env -u PYTHONDONTWRITEBYTECODE "$PY" -W ignore -c 'import importlib, sys
for name in sys.argv[1:]: importlib.import_module(name)' "$@"
}

if [ "$(minor_version "$PY" 2>/dev/null)" != "$version" ] || ! "$PY" -m pip --version >/dev/null 2>&1; then
    [ "$PYTHON" != "$PY" ] || PYTHON=python3
    rm -rf "$VENV"  # of another Python, or not finished
fi
rm -f "$stamp"
echo "setup.sh: Python $version, $TORCH into $VENV (log: $log); a first call takes two minutes, and torch's download"
[ -d "$VENV" ] || step ".venv" "$PYTHON" -m venv "$VENV"
if "$PY" -m pip show -q fairseq 2>/dev/null; then
    die "$VENV has a fairseq of your own; to use it as it is, set PYTHON_BIN=$PY; to have another, remove $VENV"
fi
# a setuptools that makes wheels, and that no torch wants to replace while fairseq is built
step "build tools" pip_install "setuptools>=77.0.3,<82" packaging cython numpy
building=
has fairseq-fixed || { background build_fairseq >"$VENV/fairseq.log" 2>&1; building=$!; }
has "$TORCH" || step "$TORCH" "$PY" -m pip install --no-compile --constraint constraints.txt "$TORCH" "torch>=2.4"
background first_import torch._dynamo >>"$log" 2>&1  # beside the rest, as it takes seconds
step "the package" install_package
[ -z "$building" ] || step "fairseq" install_fairseq  # what remains of its compilation
step "a first import" first_import fairseq_cli.{train,generate,eval_lm,preprocess} torch._dynamo matplotlib.pyplot optuna \
    pandas sacrebleu sacremoses fairseq_kernels.fairseq_plugin snakemake
printf '%s\n' "$made_from" "$TORCH" >"$stamp"
echo "setup.sh: done"
