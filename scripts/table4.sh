#!/usr/bin/env bash
# Table 4 of Gao et al. (2019), choosing among close words: how often, and how surely, lin and the mixtures of Table 3
# find the right word of a cluster of close ones, and sentences where they differ (in the results' folder table4/).
#
#   bash scripts/table4.sh data/swb --profile cpu --rows "mixbig mix2" --seeds "1 2"
#
# Models that aren't trained yet are trained, as table3.sh does; lin of a further seed is a control.
exec bash "$(dirname "$0")/table.sh" table4 "$@"
