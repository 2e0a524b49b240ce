# Sourced by prepare-NAME.sh: runs prepare_NAME.py with the environment that scripts/setup.sh made, or with PYTHON_BIN.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
choose_python
command -v "$PY" >/dev/null || die "$PY: no such Python: set PYTHON_BIN to one that has fairseq"
case " $* " in *" -h "* | *" --help "*) missing= ;;  # needs Python alone
    *) missing=$("$PY" -c '
from importlib.util import find_spec
print(*(name for name in "fairseq filelock regex sacremoses sentencepiece subword_nmt tqdm".split() if not find_spec(name)))') ;;
esac
[ -z "$missing" ] || die "$PY has no $missing: run scripts/setup.sh, or set PYTHON_BIN to a Python that has"
name=$(basename "$0" .sh)
exec "$PY" -W ignore "$ROOT/data-prep/${name//-/_}.py" "$@"
