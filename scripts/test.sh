#!/usr/bin/env bash
# Runs the tests; sets up .venv first if needed.
#
#   bash scripts/test.sh                 all of them
#   bash scripts/test.sh --fast          numerics and options: tests/numerics and tests/options
#   bash scripts/test.sh -k kernels      some: further arguments go to pytest
#
# Two files at a time; WORKERS=0 runs them in this process, as a debugger wants it.
# PYTHON, TORCH and PYTHON_BIN choose Python and torch: bash scripts/setup.sh --help
source "$(dirname "$0")/common.sh"
if [ "${1:-}" = --fast ]; then shift; set -- tests/options tests/numerics "$@"; fi
bash "$ROOT/scripts/setup.sh"
find_python fairseq torch
cd "$ROOT"
exec "$PY" -W ignore -m pytest -q --numprocesses "${WORKERS:-2}" --dist loadfile --no-loadscope-reorder \
    --max-worker-restart 1 "$@"
