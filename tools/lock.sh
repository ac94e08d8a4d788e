#!/bin/bash
# lock.sh: make tools/deb/requirements.txt anew from setup.py: the newest releases of all that the package needs, for each
# Python from 3.11 on, with the hashes of their files. Read the difference before you commit it.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/uv"
"$work/uv/bin/pip" install -q 'uv>=0.9,<1'
lock=tools/deb/requirements.txt
echo "# Made by tools/lock.sh from setup.py: make deb installs just this." > "$work/lock"
# setuptools is locked too, as it builds what has no wheel.
echo 'setuptools>=78.1.1' | "$work/uv/bin/uv" pip compile -q --universal --python-version 3.11 --generate-hashes \
  --no-header --no-annotate --extra libvirt --extra manual setup.py - >> "$work/lock"
cp "$work/lock" $lock
git diff --stat $lock
