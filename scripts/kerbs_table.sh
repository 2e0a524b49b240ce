#!/usr/bin/env bash
# KerBS (Miao et al. 2019) and its ablations, for language models and translation.
#
#   bash scripts/kerbs_table.sh data/swb data/multi30k --profile cpu
exec bash "$(dirname "$0")/table.sh" kerbs_table "$@"
