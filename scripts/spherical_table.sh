#!/usr/bin/env bash
# The language models of de Brebisson and Vincent (2016), Table 5: log-softmax, its outputs' absolute values,
# log-spherical and log-Taylor softmax, with perplexity and top-10 error, and SimLex-999's score of their embeddings.
#
#   bash scripts/spherical_table.sh data/swb --profile cpu --simlex SimLex-999.txt
exec bash "$(dirname "$0")/table.sh" spherical_table "$@"
