#!/usr/bin/env bash
# Table 2 of Gao et al. (2019): the weight rho of the mixture weights' variance in the loss, for mos (9 x lin).
#
#   bash scripts/table2.sh data/swb --profile cpu
exec bash "$(dirname "$0")/table.sh" table2 "$@"
