#!/usr/bin/env bash
# Graphs of the kernels rbf, wav, log and pow over ||W_v - h||, and their gradients (Gao et al. 2019, Figure 1).
#
#   bash scripts/figure1.sh [--kernels rbf,wav,log,pow] [--kernel-params log.p=2,pow.p=2] [--out results/figure1.svg]
#
# Beside the plot it writes a .json with the sampled values; --over square draws over ||W_v - h||^2; --help lists the
# other options.
set -euo pipefail
source "$(dirname "$0")/common.sh"
find_python
exec "$PY" -W ignore -m fairseq_kernels.analysis.kernel_graphs "$@"
