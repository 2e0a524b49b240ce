#!/usr/bin/env bash
# The language models of de Brebisson and Vincent (2016), Table 5: log-softmax, its outputs' absolute values,
# log-spherical and log-Taylor softmax, with perplexity and top-10 error, and SimLex-999's score of their embeddings.
#
#   bash scripts/spherical_table.sh data/swb --profile cpu --simlex SimLex-999.txt
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/spherical_table.json; scripts/report.sh shows them.
source "$(dirname "$0")/table.sh"
