#!/usr/bin/env bash
# Searches a kernel's hyper-parameters on a grid, by trainings and their perplexity on the development set, as Gao et al.
# (2019) did: the table configs/tables/search_KERNEL.yaml, and all options of scripts/table.sh.
#
#   bash scripts/grid_search.sh data/swb --kernel log [--searched FILE] [-- --max-update 700 --total-num-update 700]
#
# FILE gets the best point: searched.yaml in --save-dir by default, configs/searched.yaml with --publish.
source "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || { usage; exit 2; }
[[ " $* " =~ " --kernel "([^ ]+) ]] || die "--kernel is missing: give one that has configs/tables/search_KERNEL.yaml"
exec bash "$ROOT/scripts/table.sh" "search_${BASH_REMATCH[1]}" "$@"
