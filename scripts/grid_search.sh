#!/usr/bin/env bash
# Searches a kernel's hyper-parameters on a grid, by short trainings and their perplexity on the development set, as Gao
# et al. (2019) did. The test set is not looked at.
#
#   bash scripts/grid_search.sh data/swb --kernel log                          the grid of configs/grids.yaml
#   bash scripts/grid_search.sh data/swb --kernel 3xlin,rbf --grid "rbf.gamma=0.01,0.1 rbf.scale=1,10" --updates 500
#   bash scripts/grid_search.sh data/swb --kernel log --storage postgresql://USER@HOST/DATABASE
#
#   --grid "NAME=VALUES ..."  default: the kernel's in configs/grids.yaml
#   --profile NAME    of configs/{lm,mt}; default: paper with a GPU, else cpu
#   --updates N       of a training; default: a quarter of the profile's
#   --seed N          of the trainings; default: 1
#   --jobs N          trainings at a time; default: one a GPU, or one a core
#   --storage URL     of a database; default: an SQLite file in --save-dir. optuna-dashboard URL shows the search
#   --study NAME      of the search in the storage; default: CORPUS/PROFILE/KERNEL
#   --save-dir DIR    of the trainings; default: checkpoints/search
#   --searched FILE   gets the best point; default: searched.yaml in --save-dir
#   --publish         puts the best point into this repository's configs/searched.yaml
#
# With a database several machines search together by the same command; interrupted, the same command goes on. What
# follows -- goes to every training.
set -euo pipefail
source "$(dirname "$0")/common.sh"
help_asked "$@"
known_kernels "$@"
find_python fairseq torch optuna
module experiments.grid_search "$@"
