#!/usr/bin/env bash
# Trains the LSTM language model of Gao et al. (2019) with kernels in its softmax layer.
#
#   bash scripts/train_lm.sh DATA_BIN --kernels lin --save-dir checkpoints/lin
#   bash scripts/train_lm.sh DATA_BIN --kernels 3xlin,log --pi-variance-weight 0.1 --save-dir checkpoints/mix2
#   bash scripts/train_lm.sh DATA_BIN --output-layer taylor --save-dir checkpoints/taylor   (or spherical, or kerbs)
#
#   --profile cpu     LSTM of 2 x 128, 2,800 updates of 16 x 35 words (one pass over SwDA), biases from the
#                     words' log prior: about five minutes on one core
#   --profile paper   LSTM of 2 x 512, dropout 0.1 on embedded words, until the sixth epoch whose validation perplexity
#                     has not fallen, each of which halves the learning rate (default with a GPU; cpu without)
#   --stock           fairseq's own lstm_lm and cross_entropy, for comparison
#   --dry-run         the fairseq-train command alone, not run
#   --save-dir DIR    checkpoints, and log in DIR/train.log; started again it continues from DIR's last checkpoint
#
# All other options go to fairseq-train, after those of the profile, and win over them.
set -euo pipefail
source "$(dirname "$0")/common.sh"
read_training_options "$@"
need_data "$data"
size=512
case $profile in
    cpu)
        size=128
        training=(--optimizer fused_adamw --lr 0.008 --lr-scheduler polynomial_decay --warmup-updates 100 --clip-norm 1.0
            --max-update 2800 --total-num-update 2800 --batch-size 16)
        ;;
    paper)
        # not --patience, which counts validations, several an epoch, and begins anew when a training is resumed
        training=(--optimizer fused_adamw --lr 0.001 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-threshold 0.003
            --clip-norm 1.0 --max-epoch 30 --stop-min-lr 2e-5 --batch-size 32)
        ;;
esac
model=(--decoder-embed-dim $size --decoder-hidden-size $size --decoder-out-embed-dim $size --decoder-layers 2
    --dropout 0 --decoder-dropout-in 0.1 --decoder-dropout-out 0)
if [ -n "$stock" ]; then
    model=(--arch lstm_lm --criterion cross_entropy "${model[@]}")
else
    model=(--arch kernel_lstm_lm_swb --criterion $(criterion) "${model[@]}")
    # a step moves a bias by no more than the learning rate: from 0, a short training could not reach the prior
    [ $profile = cpu ] && model+=(--output-bias prior)
fi
train "$data" --task language_modeling --sample-break-mode none --tokens-per-sample 35 --best-checkpoint-metric ppl \
    "${model[@]}" "${training[@]}"
