#!/bin/bash
# nova_test.sh: our driver with nova's own code, in processes of the tests. Called by make nova-test.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/nova_venv.sh

nova_venv
"$nova/bin/pip" install -q 'pytest>=8.4,<10' ddt fixtures oslotest testtools wsgi-intercept 'openstack-placement>=13,<17'
export PYTHONPATH=$PWD OS_NOVA_DISABLE_EVENTLET_PATCHING=1
# nova's packages warn about themselves, and the shared fixtures need packages that are not here
run() { "$nova/bin/python" -m pytest -q --noconftest -p no:cacheprovider -W default "$@"; }
run tests/unit/test_inside.py tests/inside/test_novas_driver.py tests/inside/test_devspec.py tests/inside/test_novas_flavors.py
for one in numbers refusals; do run "tests/inside/test_novas_$one.py"; done  # each replaces what nova asks of libvirt
run tests/inside/test_novas_tests.py  # on its own, as nova's tests set up nova's options themselves
run --show-capture=no tests/inside/test_novas_functional.py  # twelve minutes: nova's services and placement for each
