#!/usr/bin/env bash
# Table 1 of Gao et al. (2019), the nine kernels one by one: perplexity of language models, BLEU of translation.
#
#   bash scripts/table1.sh data/swb data/multi30k --profile cpu
#   bash scripts/table1.sh data/swb --rows "lin ssg" --seeds "1 2 3"
exec bash "$(dirname "$0")/table.sh" table1 "$@"
