# Sourced by the other scripts: where things are, and how errors look.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
USER_DIR=$ROOT/fairseq_kernels

die() { printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

# The environment that setup.sh made, or the interpreter that a user has chosen.
find_python() {
    if [ -n "${PYTHON_BIN:-}" ]; then PY=$PYTHON_BIN
    elif [ -x "$ROOT/.venv/bin/python" ]; then PY=$ROOT/.venv/bin/python
    else PY=python3; fi
    "$PY" -c 'import fairseq, torch' 2>/dev/null \
        || die "$PY has no fairseq and torch; run 'bash scripts/setup.sh' first, or set PYTHON_BIN to a Python that has them"
}

# fairseq's commands, without the warnings of its own use of torch.
fairseq() { local command=$1; shift; "$PY" -W ignore -m "fairseq_cli.$command" "$@" --user-dir "$USER_DIR"; }

# Sets DEVICE to the flags of the device at hand: a GPU with bf16 where it can, else the CPU.
find_device() {
    DEVICE=()
    if ! "$PY" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then DEVICE=(--cpu); fi
}

# need_option NAME VALUE: an option's value must be there.
need_option() { [ $# -ge 2 ] && [ -n "$2" ] || die "$1 needs a value"; }

need_data() {
    [ -d "$1" ] || die "data folder '$1' not found; give the data-bin folder that a data-prep script made"
    [ -n "$(ls "$1"/dict*.txt 2>/dev/null)" ] || die "'$1' has no dict.txt; give the data-bin folder that a data-prep script made"
}
