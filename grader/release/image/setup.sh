#!/usr/bin/env bash
# Runs once, as root, when Gradescope builds the autograder's image: a Python, the packages, and nobody else may read the judge.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
./python.sh /opt/attnlab
./packages.sh /opt/attnlab './harness[worker]' .
/opt/attnlab/bin/attnlab --help >/dev/null
./close.sh /opt/attnlab
