#!/usr/bin/env bash
# IWSLT'14 German-English, from the archive de-en.tgz, to BPE'd and binarised text for translation: see --help.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
if [[ -z ${PYTHON:-} && ! -x $python ]]; then
    python=python3
fi
if ! command -v "$python" > /dev/null; then
    echo "prepare-iwslt14.sh: error: $python: no such Python: set PYTHON to one that has fairseq" >&2
    exit 2
fi
exec "$python" "$here/prepare_iwslt14.py" "$@"
