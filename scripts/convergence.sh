#!/usr/bin/env bash
# Trainings until the development set's perplexity stops falling, with controls: more layers, other kernels.
#
#   bash scripts/convergence.sh data/swb --profile cpu -- --max-update 14000 --total-num-update 14000 --lr 0.005
exec bash "$(dirname "$0")/table.sh" convergence "$@"
