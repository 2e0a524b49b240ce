#!/usr/bin/env bash
# prepare-NAME.sh, a link to this file, runs prepare_NAME.py by the environment that scripts/setup.sh made, or by
# PYTHON_BIN: see --help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
find_python fairseq regex sacremoses sentencepiece subword_nmt tqdm
name=$(basename "$0" .sh)
exec "$PY" -W ignore "$ROOT/data-prep/${name//-/_}.py" "$@"
