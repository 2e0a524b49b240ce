#!/usr/bin/env bash
# Where the weight of the linear components goes in the mixtures of Table 3 of Gao et al. (2019): its mean, by position
# in the line and by frequency of the word (their section 4.4: always above 50 %).
#
#   bash scripts/linear_weight.sh data/swb --profile cpu --rows "mixbig mix2"
#
# Models that aren't trained yet are trained, as table3.sh does.
exec bash "$(dirname "$0")/table.sh" linear_weight "$@"
