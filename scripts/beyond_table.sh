#!/usr/bin/env bash
# Beyond the papers, beside lin: kernels and mixtures whose scale, width or order is trained, or was searched; mixtures
# with a projection matrix for each component, at the same number of parameters.
#
#   bash scripts/beyond_table.sh data/swb --profile cpu --rows "lin rbf* 2xlin-untied"
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/beyond_table.json; scripts/report.sh shows them.
source "$(dirname "$0")/table.sh"
