#!/bin/bash
# ironic.sh PYTHON: an Ironic of its own in .ironic/, for the tests; its needs are not those of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted="ironic>=39.0,<40"
python=$1

exec 9< setup.py
flock 9  # two runs of make do not install at the same time
[ "$(cat .ironic/wanted 2> /dev/null)" = "$wanted" ] && .ironic/bin/python -c "" 2> /dev/null && exit
echo "making .ironic with $wanted, about a minute"
rm -rf .ironic
"$python" -m venv .ironic
log=$(mktemp)
if ! .ironic/bin/python -m pip install "$wanted" > "$log" 2>&1; then
  grep -E '^(WARNING|ERROR)' "$log" | tail -n 4 >&2 || tail -n 20 "$log" >&2
  echo "pip could not install Ironic; the whole log is $log" >&2
  exit 1
fi
rm -f "$log"
echo "$wanted" > .ironic/wanted
