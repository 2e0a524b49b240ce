exec bash "$(dirname "$0")/table.sh" kerbs_table "$@"
