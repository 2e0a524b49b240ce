#!/usr/bin/env bash
# Switchboard, Fisher and Hub5 transcripts to normalised and binarised text for language models: see --help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/run_python.sh"
