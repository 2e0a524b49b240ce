#!/usr/bin/env bash
# Translates a test set with fairseq-generate and prints two BLEU scores of that one decoding: fairseq's tokenised
# BLEU4, comparable with the paper's, and detokenised sacreBLEU, case-insensitive as the text is lower-cased.
#
#   bash scripts/evaluate_mt.sh DATA_DIR CHECKPOINT [--gen-subset valid] [fairseq-generate options]
#
# DATA_DIR is the folder that a data-prep script made, with data-bin (or its files) and test.ref.LANG. The decoding
# goes to CHECKPOINT.SUBSET.gen.
set -euo pipefail
source "$(dirname "$0")/common.sh"
case "${1:-}" in -h | --help | "") usage 2 8; exit $([ -n "${1:-}" ] && echo 0 || echo 2) ;; esac
[ $# -ge 2 ] || die "give the folder of the data and a checkpoint, as in evaluate_mt.sh data/multi30k checkpoints/lin/checkpoint_best.pt"
data=$1 checkpoint=$2 subset=test options=()
shift 2
while [ $# -gt 0 ]; do
    case $1 in
        --gen-subset) need_option "$@"; subset=$2; shift 2 ;;
        *) options+=("$1"); shift ;;
    esac
done
bin=$data
[ -d "$data/data-bin" ] && bin=$data/data-bin
need_data "$bin"
[ -f "${checkpoint%%:*}" ] || die "checkpoint '$checkpoint' not found; give a .pt file that train_mt.sh made"
find_python
find_device
target=$(ls "$bin" | sed -n "s/^$subset\.\([^.]*\)-\([^.]*\)\.\2\.idx$/\2/p" | head -1)
reference=$data/$subset.ref.$target
[ -f "$reference" ] || die "no reference '$reference'; subsets with one: $(cd "$data" && ls ./*.ref.* 2>/dev/null | tr '\n' ' ')"
bpe=subword_nmt
grep -q '▁' "$data/$subset.$target" 2>/dev/null && bpe=sentencepiece
out=${checkpoint##*:}.$subset.gen
fairseq generate "$bin" --task translation --path "$checkpoint" --gen-subset "$subset" --beam 5 \
    --remove-bpe=$bpe --max-tokens 8000 --required-batch-size-multiple 1 "${DEVICE[@]}" ${options[@]+"${options[@]}"} >"$out.part" || die "fairseq-generate failed; see above"
mv "$out.part" "$out"
grep -a '^Generate ' "$out" | sed 's/^/tokenised (fairseq): /'
"$PY" -m fairseq_kernels.analysis.bleu "$out" --reference "$reference" --language "$target"
