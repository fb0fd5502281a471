#!/usr/bin/env bash
# packages.sh FOLDER PACKAGE...: installs packages into the environment in FOLDER, with the CPU build of PyTorch where there is none.
# TORCH_INDEX names another of PyTorch's indexes, for a build with CUDA; a pip that is set up with a place of its own keeps to that.
set -euo pipefail
python=$1/bin/python
shift
pip() { "$python" -m pip install --quiet --no-cache-dir --disable-pip-version-check -c constraints.txt "$@"; }

if ! "$python" -c 'import torch' 2>/dev/null; then
  if [ -n "${PIP_FIND_LINKS:-}" ]; then pip torch; else pip --extra-index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" torch; fi
fi
pip "$@"
