#!/usr/bin/env bash
# Multi30k German-English to BPE'd and binarised text for translation: see --help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/run_python.sh"
