#!/usr/bin/env bash
# Searches a kernel's hyper-parameters on a grid, by short trainings and their perplexity on the development set, as Gao
# et al. (2019) did; the best go into configs/searched.yaml. The test set is not looked at.
#
#   bash scripts/grid_search.sh data/swb --kernel log                          the grid of configs/grids.yaml
#   bash scripts/grid_search.sh data/swb --kernel 3xlin,rbf --grid "rbf.gamma=0.01,0.1 rbf.scale=1,10" --updates 500
#   bash scripts/grid_search.sh data/swb --kernel log --storage postgresql://USER@HOST/DATABASE
#
# The last one, called on several machines, searches on all of them. Interrupted, the same command goes on. --help lists
# the options.
set -euo pipefail
source "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || { usage 2 10; exit 2; }
find_python
exec "$PY" -W ignore -m fairseq_kernels.experiments.grid_search "$@"
