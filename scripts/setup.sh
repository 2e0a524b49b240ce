#!/usr/bin/env bash
# Makes .venv with what the package, the quickstart, trainings, tables and tests need. Documents and examples need more:
# .venv/bin/python -m pip install -e '.[docs,examples]'
#
#   bash scripts/setup.sh
#   PYTHON=python3.12 TORCH='torch==2.13.0' bash scripts/setup.sh     another interpreter, another torch
#
# PYTHON      Python 3.10 to 3.13; default: that of .venv, else python3
# TORCH       what pip installs as torch unless .venv's satisfies it; default: torch, the newest
# PYTHON_BIN  a Python that has fairseq and torch: it is used as it is, by the other scripts too; nothing is installed
#
# Direct requirements come in the versions of constraints.txt. Python 3.11 and 3.12 on x86-64 Linux have a compiled
# fairseq. Elsewhere pip compiles it for minutes, which needs a C++ compiler and Python's headers.
#
# A second call installs nothing. After an interruption, call again.
source "$(dirname "$0")/common.sh"
cd "$ROOT"
[ $# = 0 ] || die "unknown argument '$1'; setup.sh takes none: set PYTHON and TORCH instead (--help explains)"
if [ -n "${PYTHON_BIN:-}" ]; then
    find_python fairseq torch
    echo "setup.sh: PYTHON_BIN=$PY is used as it is"
    exit 0
fi

minor_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }
PY=$ROOT/.venv/bin/python
if [ -z "${PYTHON:-}" ] && [ -x "$PY" ]; then PYTHON=$PY; fi
PYTHON=${PYTHON:-python3}
TORCH=${TORCH:-torch}
version=$(minor_version "$PYTHON") || die "PYTHON=$PYTHON doesn't run; name Python 3.10 to 3.13, as in PYTHON=python3.12"
[[ $version =~ ^3\.1[0-3]$ ]] || die "$PYTHON is Python $version; name Python 3.10 to 3.13, as in PYTHON=python3.12"

stamp=$ROOT/.venv/.fairseq_kernels-setup  # written when all is installed: what .venv was made from
made_from="$version $TORCH $(cat setup.py constraints.txt | cksum)"
if [ "$(cat "$stamp" 2>/dev/null)" = "$made_from" ]; then
    echo "setup.sh: $ROOT/.venv is ready (Python $version)"
    exit 0
fi

log=$ROOT/.venv.log
FIRST='fairseq_cli.train, fairseq_cli.generate, fairseq_cli.eval_lm, fairseq_kernels.fairseq_plugin, matplotlib.pyplot'
install() {  # the first import compiles what it needs, faster than pip compiles everything
    "$PY" -m pip install --no-compile --constraint constraints.txt "$@" >>"$log" 2>&1 \
        || { tail -n 5 "$log" >&2; die "pip failed; the whole log is in $log"; }
}
echo "setup.sh: pip installs $TORCH, unless .venv's is one, and fairseq into $ROOT/.venv (Python $version; log: $log);" \
    "a minute, and the downloads"
rm -f "$stamp"
if [ "$(minor_version "$PY" 2>/dev/null)" != "$version" ]; then rm -rf .venv; fi  # of another Python
: >"$log"
[ -x "$PY" ] || "$PYTHON" -m venv .venv
if [[ "$version $(uname -sm)" == 3.1[12]" Linux x86_64" ]]; then
    install "$TORCH" -e '.[recipes,test]'
else  # fairseq-fixed's setup.py imports torch, which an isolated build would fetch once more
    install "$TORCH" cython numpy 'setuptools<82' wheel
    install --no-build-isolation "$TORCH" -e '.[recipes,test]'
fi
# ve-fairseq asks for it and nothing here uses it; beside another build of torch it fails, and transformers with it
"$PY" -m pip uninstall -q -y torchaudio >>"$log" 2>&1
echo "setup.sh: imports torch and fairseq, which compiles them; 20 seconds"
torch=$("$PY" -W ignore -c "import torch, $FIRST; print(torch.__version__)") || die "fairseq can't be imported; see $log"
echo "$made_from" >"$stamp"
echo "setup.sh: done: Python $version, torch $torch"
