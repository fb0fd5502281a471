#!/usr/bin/env bash
# packages.sh FOLDER PACKAGE...: installs packages into the environment in FOLDER, with the CPU build of PyTorch where there is none.
# TORCH_INDEX names another of PyTorch's indexes, for a build with CUDA; a pip that is set up with a place of its own keeps to that.
set -euo pipefail
python=$1/bin/python
shift
versions=$(mktemp)
trap 'rm -f "$versions"' EXIT
cp constraints.txt "$versions"
pip() { "$python" -m pip install --quiet --no-cache-dir --disable-pip-version-check -c "$versions" "$@"; }

if "$python" -c 'import torch' 2>/dev/null; then
  grep -v '^torch==' constraints.txt >"$versions" # the image's own stays, whatever its version
else
  # from that index alone: beside the usual one, whose build for Linux is CUDA's, pip would take what it can reach
  if [ -z "${PIP_FIND_LINKS:-}" ]; then pip --no-deps --index-url "${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" torch; fi
  pip torch
fi
pip "$@"
