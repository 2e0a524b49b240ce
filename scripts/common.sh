# Sourced by the other scripts: where things are, and how errors look.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() { printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

# Sets PY to the interpreter that a user has chosen, or that of the environment that setup.sh made.
choose_python() {
    if [ -n "${PYTHON_BIN:-}" ]; then PY=$PYTHON_BIN
    elif [ -x "$ROOT/.venv/bin/python" ]; then PY=$ROOT/.venv/bin/python
    else PY=python3; fi
}

# known_kernels ARGUMENTS...: ends the script at once where --kernels or --kernel is wrong; torch takes seconds to load.
known_kernels() {
    choose_python
    ! command -v "$PY" >/dev/null || PYTHONPATH=$ROOT "$PY" -m fairseq_kernels.kernel_names "$@" || exit
}

# choose_python, and ends the script unless that has fairseq and torch. It only looks for them: imports take seconds.
find_python() {
    choose_python
    "$PY" -c 'from importlib.util import find_spec as has; exit(not (has("fairseq") and has("torch")))' 2>/dev/null \
        || die "$PY lacks fairseq or torch; run 'bash scripts/setup.sh' first," \
            "or set PYTHON_BIN to a Python that has them"
}

# pip_install ARGUMENTS...: pip install into PY, of constraints.txt's versions; by uv where there is one.
pip_install() {
    local pip=("$PY" -m pip install --no-compile)
    ! command -v uv >/dev/null || pip=(uv pip install --python "$PY")
    "${pip[@]}" --no-build-isolation --constraint "$ROOT/constraints.txt" "$@"
}

# need_extra NAME: after find_python, installs setup.py's extra NAME where .venv lacks it.
need_extra() {
    local missing
    missing=$(cd "$ROOT" && "$PY" -W ignore - "$1" <<'EOF'
import sys
from importlib.metadata import distributions

import setuptools  # noqa: F401  it brings distutils
from distutils.core import run_setup
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

versions = {canonicalize_name(d.name): d.version for d in distributions()}
for requirement in map(Requirement, run_setup("setup.py", stop_after="init").extras_require[sys.argv[1]]):
    version = versions.get(canonicalize_name(requirement.name))
    if requirement.marker is None or requirement.marker.evaluate():
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            requirement.marker = None
            print(f"'{requirement}'")
EOF
    ) || die "can't tell what setup.py's extra '$1' needs; see above"
    [ -n "$missing" ] || return 0
    missing=${missing//$'\n'/ }
    [ "$(dirname "$PY")" -ef "$ROOT/.venv/bin" ] \
        || die "$PY lacks what $(basename "$0") needs; run: $PY -m pip install $missing"
    echo "$(basename "$0"): installing $missing (once)"
    (cd "$ROOT" && pip_install -e ".[$1]") >>"$ROOT/.venv.log" 2>&1 \
        || die "installing $missing failed: $(tail -n 1 "$ROOT/.venv.log"); the whole log is in $ROOT/.venv.log"
}

# usage: the script's head without its comment marks.
usage() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' <"${HELP_OF:-$0}"; }

# help_asked ARGUMENTS...: the script's head, and its end, where --help is among them or nothing is given.
help_asked() {
    local word
    [ $# -gt 0 ] || { usage; exit 2; }
    for word in "$@"; do
        case $word in -h | --help) usage; exit 0 ;; --) return ;; esac
    done
}

# module NAME ARGUMENTS...: becomes python -m fairseq_kernels.NAME.
module() {
    case ${OMP_NUM_THREADS:-1} in *[!0-9,]* | 0*)
        die "OMP_NUM_THREADS=$OMP_NUM_THREADS is not allowed: set it to a number of threads, or leave it unset" ;;
    esac
    known_kernels "$@"
    find_python
    export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
    # else glibc gives work space on the CPU back to the system and gets it anew, page by page, at each step
    export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-1073741824}
    export MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}
    local name=$1; shift
    exec "$PY" -W ignore -m "fairseq_kernels.$name" "$@"
}
