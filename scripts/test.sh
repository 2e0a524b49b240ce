#!/usr/bin/env bash
# Sets up .venv if needed and runs the whole test suite. Arguments go to pytest: bash scripts/test.sh -k kernels
set -euo pipefail
source "$(dirname "$0")/common.sh"
bash "$ROOT/scripts/setup.sh"
cd "$ROOT"
exec "$ROOT/.venv/bin/python" -W ignore -m pytest -q "$@"
