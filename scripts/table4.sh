#!/usr/bin/env bash
# Table 4 of Gao et al. (2019), choosing among close words: how often, and how surely, lin and the mixtures of Table 3
# find the right word of a cluster of close ones, and sentences where they differ.
#
#   bash scripts/table4.sh data/swb --profile cpu --rows "mixbig mix2" --seeds "1 2"
#
# Models that aren't trained yet are trained, as table3.sh does; lin of a further seed is a control. --help lists the
# options. Figures are in results/table4.json, sentences in results/table4/.
MODULE=mixtures
source "$(dirname "$0")/table.sh"
