#!/usr/bin/env bash
# Table 2 of Gao et al. (2019): the weight rho of the mixture weights' variance in the loss, for mos (9 x lin).
#
#   bash scripts/table2.sh data/swb --profile cpu
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/table2.json; scripts/report.sh shows them.
source "$(dirname "$0")/table.sh"
