exec bash "$(dirname "$0")/table.sh" beyond_table "$@"
