exec bash "$(dirname "$0")/evaluate.sh" mt "$@"
