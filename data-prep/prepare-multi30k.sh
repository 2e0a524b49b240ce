#!/usr/bin/env bash
# Multi30k German-English, to BPE'd and binarised text for translation: see --help.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
if [[ -z ${PYTHON:-} && ! -x $python ]]; then
    python=python3
fi
if ! command -v "$python" > /dev/null; then
    echo "prepare-multi30k.sh: error: $python: no such Python: set PYTHON to one that has fairseq" >&2
    exit 2
fi
exec "$python" "$here/prepare_multi30k.py" "$@"
