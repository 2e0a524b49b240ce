exec bash "$(dirname "$0")/table.sh" table1 "$@"
