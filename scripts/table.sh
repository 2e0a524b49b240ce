#!/usr/bin/env bash
# Trains and evaluates the rows of a table, configs/tables/NAME.yaml, through Snakemake.
#
#   bash scripts/table.sh NAME DATA... [options] [-- options of fairseq-train for every row]
#
# DATA are folders that data-prep scripts made: text of one language gives perplexity, parallel text BLEU.
#
#   --profile NAME    sizes and schedule, of configs/{lm,mt}/NAME.yaml; default: paper with a GPU, else cpu
#   --rows ROW...     some rows; default: all
#   --seeds N...      default: 1
#   --jobs N          trainings at a time; default: one a GPU, or one a core
#   --save-dir DIR    of the runs; default: checkpoints/tables
#   --results DIR     of the figures, TABLE.json; default: checkpoints/results; scripts/report.sh shows them
#   --publish         puts the figures into this repository's results/, in the place of those published there
#   --searched FILE   what grid searches have found; default: configs/searched.yaml
#   --simlex FILE     SimLex-999.txt, to score language models' embeddings by
#   --workflow-profile DIR   a Snakemake profile, as configs/slurm, to run the rows on a cluster
#
# A finished row isn't run again, an interrupted one goes on from its newest whole checkpoint, a failing one stops no
# other: the same command again does what is left. The same command in several places shares the rows.
set -euo pipefail
source "$(dirname "$0")/common.sh"
name=${1:-}
if [ -f "$ROOT/scripts/$name.sh" ] && [[ " $* " == *" --help "* || " $* " == *" -h "* || $# = 1 ]]; then
    HELP_OF=$ROOT/scripts/$name.sh usage
    echo
fi
help_asked "$@"
module=workflow
case $name in table4 | linear_weight) module=mixtures ;; esac
find_python fairseq torch pandas snakemake
module "experiments.$module" "$@"
