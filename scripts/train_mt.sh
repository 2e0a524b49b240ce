#!/usr/bin/env bash
# Trains the transformer of Gao et al. (2019) with kernels in its softmax layer.
#
#   bash scripts/train_mt.sh DATA --kernels lin --save-dir checkpoints/iwslt-lin
#   bash scripts/train_mt.sh DATA --kernels 3xlin,log --pi-variance-weight 0.1 --save-dir checkpoints/iwslt-mix2
#
# DATA is the folder that a data-prep script made, or its data-bin.
#
#   --profile NAME    sizes and schedule, of configs/mt/NAME.yaml: cpu (256, 3 + 3 layers, 1,000 updates of 2,048 tokens),
#                     paper (512, 6 + 6 layers, 50 epochs); default: paper with a GPU, else cpu
#   --stock           fairseq's own transformer and label_smoothed_cross_entropy, for comparison
#   --user-dir FOLDER a Python package that imports fairseq_kernels.fairseq_plugin, with kernels of your own
#   --dry-run         the fairseq-train command alone, not run
#   --save-dir DIR    checkpoints, and all output in DIR/train.log; the same command again continues from the newest
#                     whole checkpoint
#
# On a GPU add --fp16 or --amp. All other options go to fairseq-train, after those of the profile, and win over them.
# Another --lr-scheduler comes without the profile's settings of its own: give its warm-up, too. Another --arch has its
# own sizes, as kernel_transformer_small.
set -euo pipefail
source "$(dirname "$0")/common.sh"
help_asked "$@"
module experiments.cli train mt "$@"
