exec bash "$(dirname "$0")/prepare.sh" dailydialog "$@"
