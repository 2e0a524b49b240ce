#!/usr/bin/env bash
# The ablations of KerBS (Miao et al. 2019, Tables 2 and 5) with one budget: softmax, mixture of softmaxes, KerBS, and
# KerBS without its kernel, with one sense a word, without dynamic allocation.
#
#   bash scripts/kerbs_table.sh data/swb/data-bin --save-dir checkpoints/kerbs-swb --profile cpu
#   bash scripts/kerbs_table.sh data/multi30k --save-dir checkpoints/kerbs-m30k --profile cpu
#
#   --rows "A B"      some of: softmax mos kerbs no-kernel one-sense fixed
#
# Other options go to every row's training. A row that is finished isn't run again, a broken one continues; the figures
# (test perplexity, or BLEU where the folder has a translation corpus) are in SAVE_DIR/ROW.txt.
set -euo pipefail
source "$(dirname "$0")/common.sh"
rows="softmax mos kerbs no-kernel one-sense fixed" save='' data='' options=()
case "${1:-}" in -h | --help | "") usage 2 11; exit $([ -n "${1:-}" ] && echo 0 || echo 2) ;; esac
data=$1
shift
while [ $# -gt 0 ]; do
    case $1 in
        --rows) need_option "$@"; rows=$2; shift 2 ;;
        --save-dir) need_option "$@"; save=$2; shift 2 ;;
        *) options+=("$1"); shift ;;
    esac
done
[ -n "$save" ] || die "--save-dir is missing; name a folder for the rows, as in --save-dir checkpoints/kerbs"
kind=mt train_data=$data/data-bin
[ -d "$data/data-bin" ] || { kind=lm; train_data=$data; }
need_data "$train_data"

flags_of() {
    case $1 in
        softmax) echo --kernels lin ;;
        mos) echo --kernels 3xlin ;;
        kerbs) echo --output-layer kerbs --senses 3x ;;
        no-kernel) echo --output-layer kerbs --senses 3x --kerbs-kernel none ;;
        one-sense) echo --output-layer kerbs --senses 1x --kerbs-reallocate-every 0 ;;
        fixed) echo --output-layer kerbs --senses 3x --kerbs-reallocate-every 0 ;;
        *) die "--rows: $1 is not known; choose from softmax mos kerbs no-kernel one-sense fixed" ;;
    esac
}

for row in $rows; do flags_of "$row" >/dev/null; done
failed=''
for row in $rows; do
    result=$save/$row.txt
    [ -s "$result" ] && continue
    if bash "$ROOT/scripts/train_$kind.sh" "$train_data" $(flags_of "$row") --save-dir "$save/$row" ${options[@]+"${options[@]}"} &&
        bash "$ROOT/scripts/evaluate_$kind.sh" "$data" "$save/$row/checkpoint_best.pt" >"$result.part" 2>&1; then
        grep -aE 'Perplexity|BLEU' "$result.part" >"$result.line" && mv "$result.line" "$result"
        rm -f "$result.part"
    else
        failed="$failed $row"  # a row that fails doesn't stop the others
    fi
done
for row in $rows; do [ -s "$save/$row.txt" ] && sed "s/^/$row: /" "$save/$row.txt"; done
[ -z "$failed" ] || die "rows failed:$failed; their logs are in $save, call again to continue them"
