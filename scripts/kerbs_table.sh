#!/usr/bin/env bash
# KerBS and its ablations (Miao et al. 2019, Tables 2 and 5) with one budget: softmax, mixture of softmaxes, KerBS,
# and KerBS without its kernel, with one sense a word, without dynamic allocation.
#
#   bash scripts/kerbs_table.sh data/swb data/multi30k --profile cpu
#
# --help lists the options. Runs are in checkpoints/tables, figures in results/kerbs_table.json; scripts/report.sh shows them.
source "$(dirname "$0")/table.sh"
