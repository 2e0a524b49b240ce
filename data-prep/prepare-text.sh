#!/usr/bin/env bash
# Any text, to binarised text for language models: see --help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/run_python.sh"
