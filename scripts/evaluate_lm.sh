#!/usr/bin/env bash
# Perplexity of a language model by fairseq-eval-lm, </s> and <unk> counted, in blocks of 35 words at most, as the
# profiles train: shorter ones where the model was trained with fewer --tokens-per-sample, not longer ones.
#
#   bash scripts/evaluate_lm.sh DATA CHECKPOINT [--gen-subset valid] [fairseq-eval-lm options]
#
# DATA is the folder that a data-prep script made, or its data-bin. What fairseq says goes to CHECKPOINT.SUBSET.log.
set -euo pipefail
source "$(dirname "$0")/common.sh"
help_asked "$@"
module experiments.cli evaluate lm "$@"
