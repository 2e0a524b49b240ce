#!/usr/bin/env bash
# Runs prepare_NAME.py, for prepare-NAME.sh, by the environment that scripts/setup.sh made, or by PYTHON_BIN.
source "$(dirname "$0")/../scripts/common.sh" "$1"  # without --help, which prepare.py answers
find_python fairseq regex sacremoses sentencepiece subword_nmt tqdm
exec "$PY" -W ignore "$ROOT/data-prep/prepare.py" "$@"
