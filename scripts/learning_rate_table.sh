#!/usr/bin/env bash
# Learning rates: perplexity on the development set.
#
#   bash scripts/learning_rate_table.sh data/swb --profile cpu
exec bash "$(dirname "$0")/table.sh" learning_rate_table "$@"
