#!/usr/bin/env bash
# Longer trainings of lin, its controls and the other kernels. Five passes over Switchboard, three with larger LSTMs:
#
#   bash scripts/convergence.sh data/swb --profile cpu -- --max-update 14000 --total-num-update 14000 --lr 0.005
#   bash scripts/convergence.sh data/swb --profile medium -- --max-update 8541 --total-num-update 8541 --lr 0.004
#   bash scripts/convergence.sh data/swb --profile paper -- --lr 0.002 --lr-scheduler polynomial_decay \
#       --warmup-updates 200 --total-num-update 4300 --max-update 4300 --output-bias prior
exec bash "$(dirname "$0")/table.sh" convergence "$@"
