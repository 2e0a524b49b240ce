#!/usr/bin/env bash
# From nothing to numbers: sets up .venv, trains language models on real English that every CPython carries (fairseq's own
# softmax, the same as the kernel lin, a tuned lin, a tuned mixture) and shows their perplexities beside the unigram's;
# then a mixture for translation, on generated German and English whose entropy is known exactly.
#
#   bash scripts/quickstart.sh [FOLDER]       default FOLDER: quickstart, in the clone
#
# Interrupted and started again, it continues.
source "$(dirname "$0")/common.sh"
mkdir -p "${1:-$ROOT/quickstart}"
out=$(cd "${1:-$ROOT/quickstart}" && pwd)
bash "$ROOT/scripts/setup.sh"
export OMP_NUM_THREADS=1  # as many models at a time as there are cores
module experiments.cli quickstart "$out"
