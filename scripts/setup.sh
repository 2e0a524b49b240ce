#!/usr/bin/env bash
# Makes .venv with everything the package, its scripts and its tests need.
#
#   bash scripts/setup.sh
#   PYTHON=python3.12 TORCH='torch==2.13.0' bash scripts/setup.sh     another interpreter, another torch
#
# A second call with the same choices takes a second or less. Interrupted, it continues where it stopped.
set -euo pipefail
source "$(dirname "$0")/common.sh"
cd "$ROOT"

PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch}
VENV=$ROOT/.venv
case "${1:-}" in
    "") ;;
    -h | --help) usage 2 7; exit 0 ;;
    *) die "unknown argument '$1'; setup.sh takes none: set PYTHON and TORCH instead" ;;
esac

command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON not found; install Python 3.10 to 3.13 or name another, as in PYTHON=python3.12"
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || die "PYTHON=$PYTHON doesn't run"
case $version in
    3.10 | 3.11 | 3.12 | 3.13) ;;
    *) die "$PYTHON is Python $version; 3.10 to 3.13 are supported: name another, as in PYTHON=python3.12" ;;
esac

# what was asked for, and what the packages are made from; written when all is installed
wanted="$version $TORCH $(cksum <setup.py)"
stamp=$VENV/.fairseq_kernels-setup
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    echo "setup.sh: $VENV is ready (Python $version)"
    exit 0
fi

"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null \
    || die "$PYTHON has no venv module; install it (on Debian: apt-get install python3-venv) and call again"
if [ "$version" != 3.12 ]; then  # fairseq-fixed has wheels for 3.12 only and is compiled elsewhere
    command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null \
        || die "no C++ compiler, which fairseq needs on Python $version; install one (on Debian: apt-get install g++) or use PYTHON=python3.12"
    "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' \
        || die "no Python.h, which fairseq needs on Python $version; install the headers (on Debian: apt-get install python3-dev) or use PYTHON=python3.12"
fi
free=$(df -Pk "$ROOT" | awk 'NR == 2 {print int($4 / 1048576)}')
need=8; [[ $TORCH == *cpu* ]] && need=3
if [ ! -d "$VENV" ] && [ "$free" -lt "$need" ] && [ -z "${SKIP_DISK_CHECK:-}" ]; then
    die "only $free GiB free in $ROOT and torch may need $need GiB; free some space, or set SKIP_DISK_CHECK=1 to try all the same"
fi

log=$ROOT/.venv.log
echo "setup.sh: Python $version, $TORCH into $VENV (log: $log); a first call takes 3 to 10 minutes"
if [ -d "$VENV" ] && [ "$("$VENV/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" != "$version" ]; then
    rm -rf "$VENV"  # of another Python, or not finished
fi
[ -d "$VENV" ] || "$PYTHON" -m venv "$VENV" || die "python -m venv failed; see above"
rm -f "$stamp"
: >"$log"
step() {
    local title=$1; shift
    printf 'setup.sh: %s ... ' "$title"
    local start=$SECONDS
    "$@" >>"$log" 2>&1 || { echo; tail -n 5 "$log" >&2; die "$title failed; the whole log is in $log"; }
    echo "$((SECONDS - start)) s"
}
step "build tools" "$VENV/bin/python" -m pip install --upgrade pip setuptools wheel cython numpy
step "$TORCH" "$VENV/bin/python" -m pip install "$TORCH"
# with torch, cython and numpy there, no isolated build fetches them again
step "fairseq and the package" "$VENV/bin/python" -m pip install --no-build-isolation -e '.[search,test]'
step "a first import" "$VENV/bin/python" -W ignore -m fairseq_kernels --list
echo "$wanted" >"$stamp"
echo "setup.sh: done"
