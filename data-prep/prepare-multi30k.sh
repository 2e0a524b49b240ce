exec bash "$(dirname "$0")/prepare.sh" multi30k "$@"
