#!/usr/bin/env bash
# Translates a test set with fairseq-generate and prints two BLEU scores of that one decoding: fairseq's tokenised
# BLEU4, comparable with the paper's, and detokenised sacreBLEU. The latter ignores case, as its signature says
# (case:lc): IWSLT'14 and Multi30k are prepared in lower case. It does so for text with capitals, too.
#
#   bash scripts/evaluate_mt.sh DATA CHECKPOINT [fairseq-generate options]
#
# DATA is the folder that a data-prep script made, with data-bin (or its files) and {valid,test}.ref.LANG. --gen-subset
# valid translates the development set. The decoding, and what fairseq says, goes to CHECKPOINT.SUBSET.gen.
set -euo pipefail
source "$(dirname "$0")/common.sh"
help_asked "$@"
module experiments.cli evaluate mt "$@"
