# Sourced by prepare-NAME.sh: runs prepare_NAME.py with the environment that scripts/setup.sh made, or with PYTHON_BIN.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name=$(basename "${BASH_SOURCE[1]}" .sh)
python=${PYTHON_BIN:-$here/../.venv/bin/python}
if [[ -z ${PYTHON_BIN:-} && ! -x $python ]]; then
    python=python3
fi
if ! command -v "$python" > /dev/null; then
    echo "$name.sh: error: $python: no such Python: set PYTHON_BIN to one that has fairseq" >&2
    exit 2
fi
missing=$("$python" -c '
from importlib.util import find_spec
print(*(name for name in "fairseq filelock sacremoses sentencepiece subword_nmt tqdm".split() if not find_spec(name)))')
if [[ -n $missing ]]; then
    echo "$name.sh: error: $python has no $missing: run scripts/setup.sh, or set PYTHON_BIN to a Python that has" >&2
    exit 2
fi
exec "$python" -W ignore "$here/${name//-/_}.py" "$@"
