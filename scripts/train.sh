#!/usr/bin/env bash
# Trains a model of Gao et al. (2019) with kernels in its softmax layer: train_lm.sh the LSTM language model, train_mt.sh
# the transformer for translation.
#
#   bash scripts/train_lm.sh DATA --kernels lin --save-dir checkpoints/lin
#   bash scripts/train_lm.sh DATA --kernels 3xlin,log --pi-variance-weight 0.1 --save-dir checkpoints/mix2
#   bash scripts/train_lm.sh DATA --output-layer taylor --save-dir checkpoints/taylor   (or spherical, or kerbs)
#   bash scripts/train_mt.sh DATA --kernels 3xlin,log --pi-variance-weight 0.1 --save-dir checkpoints/iwslt-mix2
#
# DATA is the folder that a data-prep script made, or its data-bin.
#
#   --profile NAME    sizes and schedule; default: paper with a GPU, else cpu
#                     language models, configs/lm/NAME.yaml: cpu (2 x 128, one pass over SwDA, five minutes on a core),
#                     medium (2 x 256), paper (2 x 512, until the perplexity stops falling)
#                     translation, configs/mt/NAME.yaml: cpu (256, 3 + 3 layers, 1,000 updates of 2,048 tokens), paper
#                     (512, 6 + 6 layers, 50 epochs)
#   --stock           fairseq's own model and criterion, for comparison
#   --user-dir FOLDER a Python package that imports fairseq_kernels.fairseq_plugin, with kernels of your own
#   --dry-run         the fairseq-train command alone, not run
#   --save-dir DIR    checkpoints, and all output in DIR/train.log; the same command again continues from the newest
#                     whole checkpoint
#
# On a GPU add --amp for translation. All other options go to fairseq-train, after those of the profile, and win
# over them. Another --lr-scheduler drops the profile's scheduler settings: give its warm-up, too. Another --arch, such as
# kernel_transformer_lm or kernel_transformer_small, has its own sizes.
source "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || { usage; exit 2; }
module experiments.cli train "$@"
