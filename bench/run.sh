#!/bin/bash
# Figures of this agent beside nova's, measured in the same run on this host. Called by make bench.
set -euo pipefail
cd "$(dirname "$0")/.."
nova=.bench/nova
wanted="nova==34.0.0 libvirt-python>=9,<13 sqlalchemy<2.1"

nova_venv() {
  [ "$(cat $nova/wanted 2> /dev/null)" = "$wanted" ] && return
  echo "making $nova with nova 34.0.0, about a minute"
  rm -rf $nova
  mkdir -p .bench
  # shellcheck disable=SC2086
  if ! { .venv/bin/python -m venv $nova && $nova/bin/pip install -q $wanted; } > .bench/pip.log 2>&1; then
    tail -n 20 .bench/pip.log >&2
    echo "pip could not install nova; the whole log is .bench/pip.log" >&2
    exit 1
  fi
  echo "$wanted" > $nova/wanted
}

nova_venv
PYTHONPATH=tests exec .venv/bin/python -m bench
