#!/usr/bin/env bash
# Perplexity of a language model by fairseq-eval-lm, </s> and <unk> counted, in blocks of 35 words as in training.
#
#   bash scripts/evaluate_lm.sh DATA_BIN checkpoints/lin/checkpoint_best.pt [--gen-subset valid] [fairseq-eval-lm options]
set -euo pipefail
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help | "") usage 2 4; exit $([ -n "${1:-}" ] && echo 0 || echo 2) ;; esac
[ $# -ge 2 ] || die "give the data-bin folder and a checkpoint, as in evaluate_lm.sh data/swb/data-bin checkpoints/lin/checkpoint_best.pt"
data=$1 checkpoint=$2
shift 2
need_data "$data"
[ -f "$checkpoint" ] || die "checkpoint '$checkpoint' not found; give a .pt file that train_lm.sh made"
find_python
find_device
fairseq eval_lm "$data" --task language_modeling --path "$checkpoint" --sample-break-mode none --tokens-per-sample 35 \
    --gen-subset test --batch-size 32 --required-batch-size-multiple 1 ${DEVICE[@]+"${DEVICE[@]}"} "$@"
