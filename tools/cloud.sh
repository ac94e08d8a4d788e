#!/bin/bash
# cloud.sh: what a whole nova cloud needs beside nova (Glance, our driver as it is in this folder) in the virtual
# environment of nova, and Neutron in one of its own. Called by make cloud-test.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/nova_venv.sh

neutron=.bench/neutron
server="gunicorn>=23,<27 pymysql>=1.1,<2"
besides="glance==33.0.0 sqlalchemy<2.1 $server"
networks="neutron==29.0.0 $server"

# install VENV PACKAGES...
install() {
  "$1/bin/pip" install -q "${@:2}" > .bench/pip.log 2>&1 && return
  tail -n 20 .bench/pip.log >&2
  echo "pip could not install ${*:2}; the whole log is .bench/pip.log" >&2
  exit 1
}

nova_venv
if [ "$(cat $nova/cloud 2> /dev/null)" != "$besides" ]; then
  echo "installing $besides"
  # shellcheck disable=SC2086
  install $nova $besides
  # Both look for their files below the folder of their packages.
  ln -sfn ../../../etc "$($nova/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/etc"
  echo "$besides" > $nova/cloud
fi
if [ "$(cat $neutron/cloud 2> /dev/null)" != "$networks" ]; then
  echo "making $neutron with $networks, about a minute"
  rm -rf $neutron
  .venv/bin/python -m venv $neutron
  # shellcheck disable=SC2086
  install $neutron $networks
  echo "$networks" > $neutron/cloud
fi
wheel=$(.venv/bin/python tools/nova_driver.py dist)
install $nova "$wheel"
install $nova --force-reinstall --no-deps "$wheel"
