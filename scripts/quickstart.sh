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
case "${1:-}" in -h | --help) usage; exit 0 ;; esac
mkdir -p "${1:-$ROOT/quickstart}"
out=$(cd "${1:-$ROOT/quickstart}" && pwd)
cd "$ROOT"
bash scripts/setup.sh
find_python fairseq torch

echo "quickstart.sh: text"
"$PY" data-prep/python_topics.py "$out/raw"
bash data-prep/prepare-swb.sh --out "$out/lm" \
    --train "$out/raw/train.txt" --valid "$out/raw/valid.txt" --test "$out/raw/test.txt"

# train_and_evaluate KIND NAME OPTIONS: a small model in NAME; what is measured of it on test into NAME/test.txt
train_and_evaluate() {
    local kind=$1 dir=$out/$2; shift 2
    [ ! -f "$dir/test.txt" ] || return 0
    bash "scripts/train_$kind.sh" "$out/$kind" --profile cpu --save-dir "$dir" "$@"
    bash "scripts/evaluate_$kind.sh" "$out/$kind" "$dir/checkpoint_best.pt" >"$dir/test.part"
    mv "$dir/test.part" "$dir/test.txt"
}
# fairseq's biases don't start from the words' frequencies, so those of the others don't either
lm=(--decoder-layers 1 --decoder-embed-dim 128 --decoder-hidden-size 128 --decoder-out-embed-dim 128
    --decoder-dropout-in 0.3 --decoder-dropout-out 0.3
    --max-update 640 --total-num-update 640 --warmup-updates 50 --lr 0.005 --log-interval 40)
train_and_evaluate lm stock --stock "${lm[@]}"
train_and_evaluate lm lin --kernels lin --output-bias true "${lm[@]}"
train_and_evaluate lm lin-tuned --kernels lin --kernel-params lin.scale=4 --output-bias true "${lm[@]}"
train_and_evaluate lm 3xlin,log --kernels 3xlin,log --kernel-params lin.scale=4 --pi-variance-weight 0.1 \
    --output-bias true "${lm[@]}"

echo "quickstart.sh: German and English"
"$PY" -W ignore data-prep/toy_german.py "$out/mt"
# without label smoothing, so that its perplexity compares with the best possible one
train_and_evaluate mt translation --kernels 3xlin,log --encoder-layers 2 --decoder-layers 2 \
    --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 \
    --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4 \
    --lr 0.003 --label-smoothing 0 --warmup-updates 100 --max-update 250 --log-interval 50

# value FILE KEYS: what a JSON file has there
value() { "$PY" -c 'import functools, json, operator, sys
print(functools.reduce(operator.getitem, sys.argv[2:], json.load(open(sys.argv[1]))))' "$@"; }
printf '\nLanguage models\n%-12s %s\n' softmax 'test perplexity'
printf '%-12s %.1f\n' unigram "$(value "$out/lm/prepare.json" result splits test perplexity)"
logs=()
for name in stock lin lin-tuned 3xlin,log; do
    read -r _ _ perplexity _ <"$out/$name/test.txt"
    printf '%-12s %s\n' "$name" "$perplexity"
    logs+=("$name=$out/$name/train.log")
done
echo "stock and lin are the same model, so they agree. lin-tuned and 3xlin,log move the output matrix in larger"
echo "steps (scores times 4): compare these two with each other. On so little text, a few percent mean nothing."
"$PY" -m fairseq_kernels.analysis.curves "$out/curves.png" "${logs[@]}" \
    --baseline "unigram=$(value "$out/lm/prepare.json" result splits valid perplexity)"
echo "curves and mixture weights: $out/curves.png"

printf '\nTranslation\n'
sed -n 's/^S-[0-3]\t/  German     /p; s/^T-[0-3]\t/  reference  /p; s/^H-[0-3]\t[^\t]*\t/  model      /p; s/^P-[0-3]\t.*//p' \
    "$out/translation/checkpoint_best.pt.test.gen"
printf 'best possible perplexity of English given German: %.3f; the model, on validation text: %s\n' \
    "$(value "$out/mt/prepare.json" result valid)" \
    "$(sed -n 's/.*| valid | .* ppl \([0-9.]*\) .*/\1/p' "$out/translation/train.log" | tail -1)"
cat "$out/translation/test.txt"
echo "Perplexity near the best possible one: the model has learned nearly all that the German tells of the English."
printf '\nNext: text of your own (data-prep/prepare-text.sh --help), one model (scripts/train_lm.sh --help), a table of the paper\n'
echo "(scripts/table1.sh --help)"
