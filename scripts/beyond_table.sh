#!/usr/bin/env bash
# Beyond the papers: hyper-parameters trained or searched, projections untied, another start of the bias.
#
#   bash scripts/beyond_table.sh data/swb --profile cpu --rows "lin log*"
exec bash "$(dirname "$0")/table.sh" beyond_table "$@"
