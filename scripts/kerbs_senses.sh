#!/usr/bin/env bash
# Shows what a KerBS model has learned: words by number of senses, the nearest words of each sense (Miao et al. 2019,
# Table 6), theta by word (Figure 8).
#
#   bash scripts/kerbs_senses.sh DATA_BIN CHECKPOINT [--words change order] [--out results/senses]
#
# --out receives senses.json and the plot theta.svg; --help lists the other options.
set -euo pipefail
source "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || { usage 2 7; exit 2; }
find_python
exec "$PY" -W ignore -m fairseq_kernels.analysis.kerbs_senses "$@"
