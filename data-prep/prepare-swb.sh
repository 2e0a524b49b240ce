#!/usr/bin/env bash
# Switchboard, Fisher and Hub5 transcripts to normalised and binarised text for language models: see --help.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
if [[ -z ${PYTHON:-} && ! -x $python ]]; then
    python=python3
fi
if ! command -v "$python" > /dev/null; then
    echo "prepare-swb.sh: error: $python: no such Python: set PYTHON to one that has fairseq" >&2
    exit 2
fi
exec "$python" "$here/prepare_swb.py" "$@"
