#!/bin/bash
# cloud.sh: what a whole nova cloud needs beside nova (Glance, our driver as it is in this folder) in the virtual
# environment of nova, and Neutron, Cyborg and Blazar in ones of their own. Called by make cloud-test.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/nova_venv.sh

server="gunicorn>=23,<27 pymysql>=1.1,<2"
besides="glance==33.0.0 sqlalchemy<2.1 $server"

# install VENV PACKAGES...
install() {
  "$1/bin/pip" install -q "${@:2}" > .bench/pip.log 2>&1 && return
  tail -n 20 .bench/pip.log >&2
  echo "pip could not install ${*:2}; the whole log is .bench/pip.log" >&2
  exit 1
}

# own NAME PACKAGES...: in an environment of their own
own() {
  [ "$(cat ".bench/$1/cloud" 2> /dev/null)" = "${*:2}" ] && return
  echo "making .bench/$1 with ${*:2}, about a minute"
  rm -rf ".bench/$1"
  .venv/bin/python -m venv ".bench/$1"
  install ".bench/$1" "${@:2}"
  echo "${*:2}" > ".bench/$1/cloud"
}

nova_venv
if [ "$(cat $nova/cloud 2> /dev/null)" != "$besides" ]; then
  echo "installing $besides"
  # shellcheck disable=SC2086
  install $nova $besides
  echo "$besides" > $nova/cloud
fi
# shellcheck disable=SC2086
own neutron neutron==29.0.0 $server
# shellcheck disable=SC2086
own cyborg openstack-cyborg==17.0.0 $server
own blazar blazar==18.0.0
wheel=$(.venv/bin/python tools/nova_driver.py dist)
install $nova "$wheel"
install $nova --force-reinstall --no-deps "$wheel"
