#!/bin/bash
# storage.sh: nova in a virtual environment, and links to Debian's librados for Python, to compare with.
# Called by make storage-test.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/nova_venv.sh

nova_venv
mkdir -p .bench/libraries
ln -sf /usr/lib/python3/dist-packages/rados.*.so /usr/lib/python3/dist-packages/rbd.*.so .bench/libraries/
