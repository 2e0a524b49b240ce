exec bash "$(dirname "$0")/table.sh" linear_weight "$@"
