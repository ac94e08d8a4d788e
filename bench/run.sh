#!/bin/bash
# Figures of this agent beside nova's, measured in the same run on this host. Called by make bench.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/nova_venv.sh

nova_venv
PYTHONPATH=tests exec .venv/bin/python -m bench
