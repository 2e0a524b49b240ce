# Sourced by the scripts of the tables, whose name is the table's: configs/tables/NAME.yaml has the rows. MODULE is what
# runs them.
set -euo pipefail
source "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || { usage 2 "$(awk '!/^#/ {print NR - 1; exit}' "$0")"; exit 2; }
find_python
exec "$PY" -W ignore -m fairseq_kernels.experiments.${MODULE:-runner} "$(basename "$0" .sh)" "$@"
