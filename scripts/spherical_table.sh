exec bash "$(dirname "$0")/table.sh" spherical_table "$@"
