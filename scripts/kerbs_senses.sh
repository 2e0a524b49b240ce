#!/usr/bin/env bash
# Shows what a KerBS model has learned: words by number of senses, the nearest words of each sense (Miao et al. 2019,
# Table 6), theta by word (Figure 8) and by frequency.
#
#   bash scripts/kerbs_senses.sh DATA_BIN CHECKPOINT [--words change order] [--number 8] [--neighbours 4] [--out FOLDER]
#
#   --words WORD...   these words; default: the most frequent ones of each number of senses
#   --number N        how many of them for each number of senses; default: 8
#   --neighbours N    how many nearest words of each sense; default: 4
#   --out FOLDER      receives senses.json
source "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || { usage; exit 2; }
module analysis.kerbs_senses "$@"
