#!/usr/bin/env bash
# Trains the transformer of Gao et al. (2019) with kernels in its softmax layer.
#
#   bash scripts/train_mt.sh DATA_BIN --kernels lin --save-dir checkpoints/iwslt-lin
#   bash scripts/train_mt.sh DATA_BIN --kernels 3xlin,log --pi-variance-weight 0.1 --save-dir checkpoints/iwslt-mix2
#
#   --profile paper   512, feed-forward 1024, 4 heads, 6 + 6 layers; Adam, inverse square root after 4,000 warm-up
#                     updates, dropout 0.3, label smoothing 0.1, 4,096 tokens a batch, 50 epochs (default with a GPU)
#   --profile cpu     256, feed-forward 512, 4 heads, 3 + 3 layers; 1,000 updates of 2,048 tokens, learning rate 0.0015
#                     after 300 warm-up updates, dropout 0.1, the same otherwise (default without a GPU)
#   --stock           fairseq's own transformer and label_smoothed_cross_entropy, for comparison
#   --dry-run         the fairseq-train command alone, not run
#   --save-dir DIR    checkpoints, and log in DIR/train.log; started again it continues from DIR's last checkpoint
#
# On a GPU add --fp16 or --amp. All other options go to fairseq-train, after those of the profile, and win
# over them.
set -euo pipefail
source "$(dirname "$0")/common.sh"
read_training_options "$@"
need_data "$data"
case $profile in
    cpu)
        arch=transformer_iwslt_de_en  # with the sizes of kernel_transformer_small
        training=(--lr 0.0015 --warmup-updates 300 --dropout 0.1 --max-tokens 2048 --max-update 1000)
        for side in encoder decoder; do
            training+=(--$side-embed-dim 256 --$side-ffn-embed-dim 512 --$side-attention-heads 4 --$side-layers 3)
        done
        ;;
    paper)
        arch=transformer_iwslt_de_en
        training=(--lr 0.0005 --warmup-updates 4000 --max-tokens 4096 --dropout 0.3 --max-epoch 50)
        ;;
esac
share=(--share-decoder-input-output-embed)
if [ -n "$stock" ]; then
    model=(--arch $arch --criterion label_smoothed_cross_entropy --label-smoothing 0.1)
else
    criterion=$(criterion)
    model=(--arch kernel_$arch --criterion $criterion)
    case $criterion in
        log_*) ;;  # a spherical loss has no label smoothing
        kerbs_*) model+=(--label-smoothing 0.1) share=() ;;  # which has several vectors a word to share
        *) model+=(--label-smoothing 0.1) ;;
    esac
fi
train "$data" --task translation "${model[@]}" ${share[@]+"${share[@]}"} \
    --optimizer fused_adamw --adam-betas '(0.9, 0.98)' --weight-decay 0.0001 --clip-norm 0.0 \
    --lr-scheduler inverse_sqrt "${training[@]}"
