#!/usr/bin/env bash
# From nothing to numbers: sets up .venv, then trains language models on real English that every CPython carries:
# the stock softmax, lin, one other kernel and a mixture, and shows their perplexities beside the unigram's.
#
#   bash scripts/quickstart.sh [FOLDER]       default FOLDER: quickstart
#
# Interrupted and started again, it continues.
set -euo pipefail
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help) usage 2 7; exit 0 ;; -*) die "unknown option '$1'; give a folder or nothing" ;; esac
cd "$ROOT"
out=${1:-quickstart}
bash scripts/setup.sh
find_python
mkdir -p "$out" || die "can't make $out; give a folder you may write to"

echo "quickstart.sh: text"
"$PY" data-prep/python_topics.py "$out/raw"
PYTHON=$PY bash data-prep/prepare-swb.sh --out "$out/lm" \
    --train "$out/raw/train.txt" --valid "$out/raw/valid.txt" --test "$out/raw/test.txt"

# train_and_evaluate NAME OPTIONS: a small LSTM; perplexity on test into NAME/test.ppl
size=(--profile cpu --decoder-layers 1 --decoder-embed-dim 128 --decoder-hidden-size 128 --decoder-out-embed-dim 128
    --decoder-dropout-in 0.3 --decoder-dropout-out 0.3 --max-update 320 --total-num-update 320 --warmup-updates 30 --lr 0.006 --log-interval 40)
train_and_evaluate() {
    local name=$1 dir=$out/$1; shift
    if [ ! -f "$dir/test.ppl" ]; then
        echo "quickstart.sh: training $name (log: $dir/train.log)"
        bash scripts/train_lm.sh "$out/lm/data-bin" --save-dir "$dir" "${size[@]}" "$@" \
            | sed -nu 's/.*train_inner | epoch \([0-9]*\):.* ppl=\([0-9.]*\),.*num_updates=\([0-9]*\),.*/  epoch \1, update \3: training perplexity \2/p
                       s/.*| valid | epoch \([0-9]*\) .* ppl \([0-9.]*\) .*num_updates \([0-9]*\) .*/  epoch \1, update \3: validation perplexity \2/p'
        bash scripts/evaluate_lm.sh "$out/lm/data-bin" "$dir/checkpoint_best.pt" >"$dir/test.log" 2>&1 \
            || die "evaluation of $name failed; see $dir/test.log"
        sed -n 's/.*Perplexity: \([0-9.]*\).*/\1/p' "$dir/test.log" >"$dir/test.ppl.part"
        mv "$dir/test.ppl.part" "$dir/test.ppl"
    fi
}
train_and_evaluate stock --stock
train_and_evaluate lin --kernels lin
train_and_evaluate pow --kernels pow
train_and_evaluate 3xlin,log --kernels 3xlin,log --pi-variance-weight 0.1

unigram=$("$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))["dictionary"]["result"]["splits"]["test"]["perplexity"])' "$out/lm/prepare.json")
valid_unigram=$("$PY" -c 'import json, sys; print(json.load(open(sys.argv[1]))["dictionary"]["result"]["splits"]["valid"]["perplexity"])' "$out/lm/prepare.json")
logs=()
printf '\n%-12s %s\n' 'softmax' 'test perplexity'
printf '%-12s %.1f\n' unigram "$unigram"
for name in stock lin pow 3xlin,log; do
    printf '%-12s %.1f\n' "$name" "$(cat "$out/$name/test.ppl")"
    logs+=("$name=$out/$name/train.log")
done
"$PY" -m fairseq_kernels.analysis.curves "$out/curves.png" "${logs[@]}" --baseline "unigram=$valid_unigram"
printf '\ncurves and mixture weights: %s\n' "$out/curves.png"
