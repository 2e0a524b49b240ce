#!/usr/bin/env bash
# WikiText-2 and WikiText-103 to binarised text for language models: see --help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/run_python.sh"
