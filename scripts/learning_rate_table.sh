exec bash "$(dirname "$0")/table.sh" learning_rate_table "$@"
