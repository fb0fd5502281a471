#!/usr/bin/env bash
# python.sh FOLDER: makes a virtual environment in FOLDER with a Python that the grader runs on, 3.11 to 3.14.
# It takes the machine's own where that is new enough, else one from its package manager, else one that uv brings along.
set -euo pipefail
folder=$1
candidates="python3.13 python3.12 python3.11 python3.14 python3 python"

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }
has_torch() { "$1" -c 'import torch' 2>/dev/null; }
makes() { # a torch that the machine brings, built for its GPU, is used as it is
  if has_torch "$1"; then set -- "$1" --system-site-packages; fi
  "$1" -m venv ${2:-} "$folder" >/dev/null 2>&1
}

from_packages() {
  command -v apt-get >/dev/null || return 1
  apt-get update -qq
  for version in 3.12 3.11 3.13; do
    if [ -n "$(apt-cache search --names-only "^python$version-venv\$")" ]; then
      DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "python$version" "python$version-venv" libseccomp2 >&2
      rm -rf /var/lib/apt/lists/*
      makes "python$version" && return
    fi
  done
  return 1
}

from_uv() { # below /opt, since a submission runs as a user who cannot look into root's home
  export UV_PYTHON_INSTALL_DIR=/opt/python
  command -v uv >/dev/null || python3 -m pip install --quiet uv 2>/dev/null || python3 -m pip install --quiet --break-system-packages uv
  uv python install 3.12 >&2
  makes "$(uv python find 3.12)"
}

for python in $candidates; do
  if fits "$python" && makes "$python"; then exit; fi
done
from_packages || from_uv || {
  echo "python.sh: this image has no Python from 3.11 to 3.14, and neither apt nor uv could bring one:" \
    "start from an image that has one, as with --build-arg BASE_IMAGE=python:3.12-slim" >&2
  exit 1
}
