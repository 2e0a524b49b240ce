#!/usr/bin/env bash
# Evaluates a checkpoint on a test set.
#
#   bash scripts/evaluate_lm.sh DATA CHECKPOINT [--gen-subset valid] [fairseq-eval-lm options]
#   bash scripts/evaluate_mt.sh DATA CHECKPOINT [--gen-subset valid] [fairseq-generate options]
#
# DATA is the folder that a data-prep script made, or its data-bin. Translation needs {valid,test}.ref.LANG beside data-bin.
#
# A language model: perplexity by fairseq-eval-lm, </s> and <unk> counted, in blocks of as many words as in its training
# (--tokens-per-sample). What fairseq says goes to CHECKPOINT.SUBSET.log.
#
# Translation: two BLEU scores of one decoding by fairseq-generate, fairseq's tokenised BLEU4, comparable with the paper's,
# and detokenised sacreBLEU, which ignores case, as its signature says (case:lc): IWSLT'14 and Multi30k are prepared in
# lower case. The decoding goes to CHECKPOINT.SUBSET.gen, fairseq's log to .log.
source "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || { usage; exit 2; }
module experiments.cli evaluate "$@"
