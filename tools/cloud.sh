#!/bin/bash
# cloud.sh: what a whole nova cloud needs beside nova, in the virtual environment of nova. Called by make cloud-test.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/nova_venv.sh

besides="glance==33.0.0 gunicorn>=23,<27 pymysql>=1.1,<2"

nova_venv
[ "$(cat $nova/cloud 2> /dev/null)" = "$besides" ] && exit
echo "installing $besides"
# shellcheck disable=SC2086
if ! $nova/bin/pip install -q $besides "sqlalchemy<2.1" > .bench/pip.log 2>&1; then
  tail -n 20 .bench/pip.log >&2
  echo "pip could not install Glance; the whole log is .bench/pip.log" >&2
  exit 1
fi
# Both look for their files below the folder of their packages.
ln -sfn ../../../etc "$($nova/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/etc"
echo "$besides" > $nova/cloud
