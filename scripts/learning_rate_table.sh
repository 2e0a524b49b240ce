#!/usr/bin/env bash
# The learning rate of scripts/train_lm.sh's --profile cpu: perplexity on the development set over learning rates.
#
#   bash scripts/learning_rate_table.sh data/swb --profile cpu
#   bash scripts/learning_rate_table.sh data/swb --rows "lin-0.004 lin-0.008"
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/learning_rate_table.json; scripts/report.sh
# shows them.
source "$(dirname "$0")/table.sh"
