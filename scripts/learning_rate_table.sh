#!/usr/bin/env bash
# The learning rate of the CPU profile: perplexity on the development set.
#
#   bash scripts/learning_rate_table.sh data/swb --profile cpu
exec bash "$(dirname "$0")/table.sh" learning_rate_table "$@"
