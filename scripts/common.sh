# Sourced by the other scripts: where things are, how errors look, and what --help says.
set -euo pipefail
ROOT=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

PY=
unset PYTHONDONTWRITEBYTECODE  # which containers set: each Python would compile all of torch and fairseq

# find_python MODULE...: sets PY to the interpreter that a user has chosen, or that of the environment that setup.sh made,
# and ends the script unless that has these modules. It only looks for them: imports take seconds.
find_python() {
    local missing
    if [ -n "${PYTHON_BIN:-}" ]; then PY=$PYTHON_BIN
    elif [ -x "$ROOT/.venv/bin/python" ]; then PY=$ROOT/.venv/bin/python
    else PY=python3; fi
    command -v "$PY" >/dev/null || die "$PY: no such Python: set PYTHON_BIN to one that has fairseq"
    missing=$("$PY" -c 'import sys
from importlib.util import find_spec
print(*(name for name in sys.argv[1:] if not find_spec(name)))' "$@" 2>/dev/null) || missing="$*"
    [ -z "$missing" ] || die "$PY has no $missing: run scripts/setup.sh, or set PYTHON_BIN to a Python that has it"
}

# usage: the script's head without its comment marks.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' <"$0"; }

for word in "$@"; do
    case $word in -h | --help) usage; exit 0 ;; --) break ;; esac
done

# module NAME ARGUMENTS...: becomes python -m fairseq_kernels.NAME.
module() {
    [ -n "$PY" ] || find_python fairseq torch
    export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
    # else glibc gives work space on the CPU back to the system and gets it anew, page by page, at each step
    export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-1073741824}
    export MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}
    local name=$1; shift
    exec "$PY" -W ignore -m "fairseq_kernels.$name" "$@"
}
