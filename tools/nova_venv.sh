# shellcheck shell=bash
# For scripts that need nova: defines nova_venv, which makes the virtual environment $nova in .bench/.
nova=.bench/nova
wanted="nova==34.0.0 libvirt-python>=9,<13 sqlalchemy<2.1 msgspec>=0.23,<1"

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
  # nova, and Glance beside it, look for their files below the folder of their packages.
  ln -sfn ../../../etc "$($nova/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/etc"
  echo "$wanted" > $nova/wanted
}
