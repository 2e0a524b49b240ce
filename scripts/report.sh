#!/usr/bin/env bash
# Shows what has been run, beside the papers' numbers: as Markdown, and as an HTML page that needs no other file, with
# verdicts on the papers' claims, intervals, comparisons with lin, how each row was made, and mixture weights. They are
# report.md and report.html beside the results.
#
#   bash scripts/report.sh [--results DIR] [--into FILE]
#   bash scripts/report.sh --publish --into docs/results-tables.md --figure docs/images/gain.svg
#
#   --results DIR     with TABLE.json; default: checkpoints/results
#   --publish         of this repository's results/
#   --figure FILE     the first page's plot, as SVG
#   --into FILE       a Markdown file: puts each TABLE between its lines <!-- TABLE --> and <!-- /TABLE -->
source "$(dirname "$0")/common.sh"
find_python fairseq torch jinja2 pandas
module experiments.report "$@"
