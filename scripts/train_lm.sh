exec bash "$(dirname "$0")/train.sh" lm "$@"
