#!/usr/bin/env bash
# Table 3 of Gao et al. (2019): mos (9 x lin), mixbig (all nine kernels) and mix1 to mix5.
#
#   bash scripts/table3.sh data/swb --profile cpu --rows "lin mos mixbig"
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/table3.json; scripts/report.sh shows them.
source "$(dirname "$0")/table.sh"
