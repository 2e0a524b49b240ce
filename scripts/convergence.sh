#!/usr/bin/env bash
# Longer trainings, five passes over Switchboard with the schedule below, of lin and its controls: more layers, other
# kernels.
#
#   bash scripts/convergence.sh data/swb --profile cpu -- --max-update 14000 --total-num-update 14000 --lr 0.005
exec bash "$(dirname "$0")/table.sh" convergence "$@"
