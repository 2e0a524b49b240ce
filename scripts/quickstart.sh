#!/usr/bin/env bash
# From nothing to numbers: sets up .venv, trains language models on real English that every CPython carries (fairseq's own
# softmax, the same as the kernel lin, a tuned lin, a tuned mixture) and shows their perplexities beside the unigram's;
# then a mixture for translation, on generated German and English whose entropy is known exactly.
#
#   bash scripts/quickstart.sh [FOLDER]       default FOLDER: quickstart, in the clone
#
# Interrupted and started again, it continues.
set -euo pipefail
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) usage; exit 0 ;; -*) die "unknown option '$1'; give a folder or nothing" ;; esac
case ${1:-} in "") out=quickstart ;; /*) out=$1 ;; *) out=$PWD/$1 ;; esac
cd "$ROOT"
bash scripts/setup.sh
find_python fairseq torch
mkdir -p "$out" || die "can't make $out; give a folder you may write to"

echo "quickstart.sh: text"
"$PY" data-prep/python_topics.py "$out/raw"
PYTHON_BIN=$PY bash data-prep/prepare-swb.sh --out "$out/lm" \
    --train "$out/raw/train.txt" --valid "$out/raw/valid.txt" --test "$out/raw/test.txt"

# train_and_evaluate NAME OPTIONS: a small LSTM; its perplexity on test into NAME/test.txt
size=(--profile cpu --decoder-layers 1 --decoder-embed-dim 128 --decoder-hidden-size 128 --decoder-out-embed-dim 128
    --decoder-dropout-in 0.3 --decoder-dropout-out 0.3 --max-update 640 --total-num-update 640 --warmup-updates 50 --lr 0.005 --log-interval 40)
train_and_evaluate() {
    local name=$1 dir=$out/$1; shift
    if [ ! -f "$dir/test.txt" ]; then
        echo "quickstart.sh: training $name"
        bash scripts/train_lm.sh "$out/lm/data-bin" --save-dir "$dir" "${size[@]}" "$@"
        bash scripts/evaluate_lm.sh "$out/lm/data-bin" "$dir/checkpoint_best.pt" >"$dir/test.part"
        mv "$dir/test.part" "$dir/test.txt"
    fi
}
# fairseq's biases don't start from the words' frequencies, so those of the others don't either
train_and_evaluate stock --stock
train_and_evaluate lin --kernels lin --output-bias true
train_and_evaluate lin-tuned --kernels lin --kernel-params lin.scale=4 --output-bias true
train_and_evaluate 3xlin,log --kernels 3xlin,log --kernel-params lin.scale=4 --pi-variance-weight 0.1 --output-bias true

# unigram SPLIT: its perplexity, as prepare-swb.sh has noted it
unigram() {
    "$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))["result"]["splits"][sys.argv[2]]["perplexity"])' \
        "$out/lm/prepare.json" "$1"
}
logs=()
{
    printf '%-12s %s\n' softmax 'test perplexity'
    printf '%-12s %.1f\n' unigram "$(unigram test)"
    for name in stock lin lin-tuned 3xlin,log; do
        read -r _ _ perplexity _ <"$out/$name/test.txt"
        printf '%-12s %s\n' "$name" "$perplexity"
        logs+=("$name=$out/$name/train.log")
    done
} >"$out/perplexities.txt"
"$PY" -m fairseq_kernels.analysis.curves "$out/curves.png" "${logs[@]}" --baseline "unigram=$(unigram valid)"

echo "quickstart.sh: German and English"
"$PY" -W ignore data-prep/toy_german.py "$out/mt"
dir=$out/translation
if [ ! -f "$dir/bleu.txt" ]; then
    echo "quickstart.sh: training a transformer with 3xlin,log"
    size=(--encoder-layers 2 --decoder-layers 2)
    for side in encoder decoder; do
        size+=("--$side-embed-dim" 128 "--$side-ffn-embed-dim" 256 "--$side-attention-heads" 4)
    done
    # without label smoothing, so that its perplexity compares with the best possible one
    bash scripts/train_mt.sh "$out/mt/data-bin" --profile cpu --kernels 3xlin,log --save-dir "$dir" "${size[@]}" --lr 0.003 \
        --label-smoothing 0 --warmup-updates 100 --max-update 250 --log-interval 50
    bash scripts/evaluate_mt.sh "$out/mt" "$dir/checkpoint_best.pt" >"$dir/bleu.part"
    mv "$dir/bleu.part" "$dir/bleu.txt"
fi

printf '\nLanguage models\n'
cat "$out/perplexities.txt"
printf 'stock and lin are the same model, so they agree. lin-tuned moves the output matrix in larger steps (scores times 4);\n'
printf 'so does 3xlin,log, and that is what to compare it with: on so little text, a few percent say nothing.\n'
printf 'curves and mixture weights: %s\n\nTranslation\n' "$out/curves.png"
for number in 0 1 2 3; do
    sed -n "s/^S-$number\t/  German     /p; s/^T-$number\t/  reference  /p; s/^H-$number\t[^\t]*\t/  model      /p" \
        "$dir/checkpoint_best.pt.test.gen"
    echo
done
printf 'best possible perplexity of English given German: %.3f; the model, on validation text: %s\n' \
    "$("$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))["best perplexity of English given German"]["valid"])' "$out/mt/entropy.json")" \
    "$(sed -n 's/.*| valid | .* ppl \([0-9.]*\) .*/\1/p' "$dir/train.log" | tail -1)"
cat "$dir/bleu.txt"
printf 'Perplexity near the best possible one: the model has learned nearly all that the German tells of the English.\n'
printf '\nNext: text of your own (data-prep/prepare-text.sh --help), one model (scripts/train_lm.sh --help), a table of the paper\n'
printf '(scripts/table1.sh --help)\n'
