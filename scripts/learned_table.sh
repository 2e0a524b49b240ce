#!/usr/bin/env bash
# The kernels with a scale, a width or an order that is trained instead of searched, beside lin.
#
#   bash scripts/learned_table.sh data/swb --profile cpu --rows "lin rbf*"
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/learned_table.json; scripts/report.sh shows them.
source "$(dirname "$0")/table.sh"
