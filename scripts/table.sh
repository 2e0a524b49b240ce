#!/usr/bin/env bash
# Trains and evaluates the rows of a table, configs/tables/NAME.yaml, through Snakemake.
#
#   bash scripts/table1.sh data/swb data/multi30k --profile cpu
#   bash scripts/table.sh NAME DATA... [options] [-- options of fairseq-train for every row]
#
# DATA are folders that data-prep scripts made: text of one language gives perplexity, parallel text BLEU.
# table4 (choice among close words) and linear_weight (weight of the linear components) measure the models of table3 and
# train those that are missing.
#
#   --profile NAME    sizes and schedule, of configs/{lm,mt}/NAME.yaml; default: paper with a GPU, else cpu
#   --rows ROW...     some rows; default: all
#   --seeds N...      default: 1
#   --jobs N          trainings at a time; default: one for each core; with GPUs one, which uses them all
#   --save-dir DIR    of the runs; default: checkpoints/tables
#   --results DIR     of the records, TABLE.json; default: checkpoints/results; scripts/report.sh shows them
#   --publish         puts the records into this repository's results/, replacing those of the same runs
#   --searched FILE   what searches have found; default: configs/searched.yaml
#   --simlex FILE     SimLex-999.txt, to score language models' embeddings by
#   --user-dir FOLDER a Python package that imports fairseq_kernels.fairseq_plugin, with kernels of your own
#   --workflow-profile DIR   a Snakemake profile, as configs/slurm, to run the rows on a cluster
#
# A finished row isn't run again, an interrupted one goes on from its newest whole checkpoint, a failing one stops no
# other: the same command again does what is left.
table=$(dirname "$0")/../configs/tables/${1:-}.yaml
case " $* " in *" --help "* | *" -h "*) [ ! -f "$table" ] || { sed 's/^# //; /^rows:/,$d' "$table"; echo; } ;; esac
source "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || { usage; exit 2; }
find_python fairseq torch snakemake
module experiments.cli table "$@"
