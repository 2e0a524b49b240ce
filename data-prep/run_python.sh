# Sourced by prepare-NAME.sh: runs prepare_NAME.py with the environment that scripts/setup.sh made, or with PYTHON_BIN.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/common.sh"
case " $* " in
    *" -h "* | *" --help "*) choose_python ;;  # needs Python alone
    *) find_python fairseq filelock regex sacremoses sentencepiece subword_nmt tqdm ;;
esac
name=$(basename "$0" .sh)
exec "$PY" -W ignore "$ROOT/data-prep/${name//-/_}.py" "$@"
