#!/usr/bin/env bash
# Table 3 of Gao et al. (2019): mos (9 x lin), mixbig (all nine kernels) and mix1 to mix5.
#
#   bash scripts/table3.sh data/swb --profile cpu --rows "lin mos mixbig"
exec bash "$(dirname "$0")/table.sh" table3 "$@"
