#!/usr/bin/env bash
# Graphs of the kernels rbf, wav, log and pow over ||W_v - h||, and their gradients (Gao et al. 2019, Figure 1).
#
#   bash scripts/figure1.sh [--kernels rbf,wav,log,pow] [--kernel-params log.p=2,pow.p=2]
#                           [--max-distance 4] [--out FILE]
#
# The plot is checkpoints/results/figure1.svg, or FILE: results/figure1.svg is that of the defaults.
source "$(dirname "$0")/common.sh"
module analysis.kernel_graphs "$@"
