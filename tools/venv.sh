#!/bin/bash
# venv.sh PYTHON EXTRAS: the virtual environment .venv with this project and its extras, quietly.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 extras=$2

exec 9< setup.py
flock 9  # two runs of make do not install at the same time
if ! .venv/bin/pip --version > /dev/null 2>&1; then  # none, half made, or moved here with the clone
  echo "making .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv
fi
echo "installing by pip: compute-node-agent[$extras]"
log=$(mktemp)
if ! { .venv/bin/python -m pip install --upgrade pip setuptools wheel &&
    .venv/bin/python -m pip install --editable ".[$extras]"; } > "$log" 2>&1; then
  grep -E '^(WARNING|ERROR)' "$log" | tail -n 4 >&2 || tail -n 20 "$log" >&2
  echo "pip could not install; the whole log is $log" >&2
  exit 1
fi
rm -f "$log"
.venv/bin/python -m compileall -q agent drivers reportclient  # else root does, in folders this user cannot remove
