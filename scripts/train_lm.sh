#!/usr/bin/env bash
# Trains the LSTM language model of Gao et al. (2019) with kernels in its softmax layer.
#
#   bash scripts/train_lm.sh DATA --kernels lin --save-dir checkpoints/lin
#   bash scripts/train_lm.sh DATA --kernels 3xlin,log --pi-variance-weight 0.1 --save-dir checkpoints/mix2
#   bash scripts/train_lm.sh DATA --output-layer taylor --save-dir checkpoints/taylor   (or spherical, or kerbs)
#
# DATA is the folder that a data-prep script made, or its data-bin.
#
#   --profile NAME    sizes and schedule, of configs/lm/NAME.yaml: cpu (2 x 128, one pass over SwDA, five minutes on a
#                     core), medium (2 x 256), paper (2 x 512, until the perplexity stops falling); default: paper with a
#                     GPU, else cpu
#   --stock           fairseq's own lstm_lm and cross_entropy, for comparison
#   --user-dir FOLDER a Python package that imports fairseq_kernels.fairseq_plugin, with kernels of your own
#   --dry-run         the fairseq-train command alone, not run
#   --save-dir DIR    checkpoints, and all output in DIR/train.log; the same command again continues from the newest
#                     whole checkpoint
#
# All other options go to fairseq-train, after those of the profile, and win over them. Another --lr-scheduler comes
# without the profile's settings of its own: give its warm-up, too. Another --arch has its own sizes, as
# kernel_transformer_lm.
set -euo pipefail
source "$(dirname "$0")/common.sh"
help_asked "$@"
module experiments.cli train lm "$@"
