# Sourced by the other scripts: where things are, and how errors look.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
USER_DIR=$ROOT/fairseq_kernels

die() { printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2; exit 2; }

# Sets PY to the interpreter that a user has chosen, or that of the environment that setup.sh made.
find_python() {
    if [ -n "${PYTHON_BIN:-}" ]; then PY=$PYTHON_BIN
    elif [ -x "$ROOT/.venv/bin/python" ]; then PY=$ROOT/.venv/bin/python
    else PY=python3; fi
    [ "${FOUND_PYTHON:-}" = "$PY" ] && return  # by a script that called this one
    local reason
    reason=$("$PY" -W ignore -c 'import fairseq, torch' 2>&1) || die "$PY can't import fairseq and torch" \
        "($(tail -n 1 <<<"$reason")); run 'bash scripts/setup.sh' first, or set PYTHON_BIN to a Python that has them"
    export FOUND_PYTHON=$PY
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

# fairseq's commands, without the warnings of its own use of torch.
fairseq() { local command=$1; shift; "$PY" -W ignore -m "fairseq_cli.$command" "$@" --user-dir "$USER_DIR"; }

# Sets DEVICE to the flags of the device at hand: none for a GPU, else those of the CPU.
find_device() {
    DEVICE=()
    if [ -z "${FOUND_DEVICE:-}" ]; then
        FOUND_DEVICE=$("$PY" -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")')
        export FOUND_DEVICE
    fi
    if [ $FOUND_DEVICE != cuda ]; then
        DEVICE=(--cpu)
        # else glibc gives work space back to the system and gets it anew, page by page, at each step
        export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-1073741824}
        export MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}
    fi
}

# need_option NAME VALUE: an option's value must be there.
need_option() { [ $# -ge 2 ] && [ -n "$2" ] || die "$1 needs a value"; }

need_data() {
    [ -d "$1" ] || die "data folder '$1' not found; give the data-bin folder that a data-prep script made"
    [ -n "$(ls "$1"/dict*.txt 2>/dev/null)" ] || die "'$1' has no dict.txt; give the data-bin folder that a data-prep script made"
}

# usage FIRST LAST: those lines of the script's head, without their comment marks.
usage() { sed -n "$1,$2s/^# \{0,1\}//p" "$0"; }

# The options that training scripts share, into data, profile, save, stock, dry_run and options (all others).
read_training_options() {
    data='' profile='' save='' stock='' dry_run='' options=()
    local last; last=$(awk '!/^#/ {print NR - 1; exit}' "$0")
    [ $# -gt 0 ] || { usage 2 "$last"; exit 2; }
    while [ $# -gt 0 ]; do
        case $1 in
            -h | --help) usage 2 "$last"; exit 0 ;;
            --profile) need_option "$@"; profile=$2; shift 2 ;;
            --save-dir) need_option "$@"; save=$2; shift 2 ;;
            --stock) stock=1; shift ;;
            --dry-run) dry_run=1; shift ;;
            *) if [ -z "$data" ] && [ ${#options[@]} -eq 0 ] && [ "${1#-}" = "$1" ]; then data=$1; else options+=("$1"); fi; shift ;;
        esac
    done
    [ -n "$data" ] || die "no data; give the data-bin folder first, as in $(basename "$0") data/corpus/data-bin --kernels lin"
    [ -n "$save" ] || die "--save-dir is missing; name a folder for checkpoints and log, as in --save-dir checkpoints/lin"
    case $profile in "" | cpu | paper) ;; *) die "--profile $profile is not known; choose cpu or paper" ;; esac
    find_python
    find_device
    [ -n "$profile" ] || { [ ${#DEVICE[@]} -eq 0 ] && profile=paper || profile=cpu; }
}

# The criterion of the output layer that the options name.
criterion() {
    local layer=kernels i
    for ((i = 0; i < ${#options[@]}; i++)); do
        case ${options[i]} in
            --output-layer) layer=${options[i + 1]:-} ;;
            --output-layer=*) layer=${options[i]#*=} ;;
        esac
    done
    case $layer in
        taylor | spherical) echo log_${layer}_softmax ;;
        kerbs) echo kerbs_cross_entropy ;;
        *) echo kernel_mixture_cross_entropy ;;
    esac
}

# train DATA FLAGS...: fairseq-train with the user's options last; log on the screen and in the save folder.
# Batches that depend on the epoch alone make a resumed run the same as an uninterrupted one.
# fairseq drops a last batch whose size is not a multiple of 8, in validation too: hence the multiple of 1.
train() {
    set -- "$@" ${DEVICE[@]+"${DEVICE[@]}"} --save-dir "$save" --no-epoch-checkpoints --keep-interval-updates 1 \
        --save-interval-updates 500 --log-format simple --log-interval 100 --seed 1 \
        --required-batch-size-multiple 1 --update-epoch-batch-itr True ${options[@]+"${options[@]}"}
    if [ -n "$dry_run" ]; then
        printf '%q ' fairseq-train "$@" --user-dir "$USER_DIR"
        echo
        return
    fi
    mkdir -p "$save" || die "can't make --save-dir $save; give a folder you may write to"
    fairseq train "$@" 2>&1 | tee -a "$save/train.log"
}
