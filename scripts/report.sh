#!/usr/bin/env bash
# Shows the tables that have been run, beside the papers' numbers: as Markdown, and as an HTML page that needs no other
# file, with how each number was made, learning curves, mixture weights and the seeds' spread.
#
#   bash scripts/report.sh [--results results] [--tables table1 table3] [--readme README.md]
#
# It writes report.md and report.html beside the results; --help lists the other options.
set -euo pipefail
source "$(dirname "$0")/common.sh"
case " $* " in *" --help "* | *" -h "*) usage; exit 0 ;; esac
find_python
exec "$PY" -W ignore -m fairseq_kernels.experiments.report "$@"
