#!/usr/bin/env bash
# IWSLT'14 German-English, from the archive de-en.tgz, to BPE'd and binarised text for translation: see --help.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/run_python.sh"
