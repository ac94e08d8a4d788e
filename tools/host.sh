#!/bin/bash
# What this host needs outside the virtual environment.
#   host.sh packages   install, by apt, what is missing
#   host.sh libvirtd   start libvirtd where none runs, with or without systemd
set -euo pipefail

PACKAGES="libvirt-daemon-system libvirt-clients libvirt-dev qemu-system-x86 qemu-utils pkg-config gcc libc6-dev
  python3-dev python3-venv util-linux"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo > /dev/null; then sudo "$@"
  else echo "this needs root: run it as root, or install sudo ($*)" >&2; exit 1
  fi
}

packages() {
  local missing="" package log
  for package in $PACKAGES; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" = installed ] || missing+=" $package"
  done
  [ -z "$missing" ] && return
  echo "installing by apt:$missing"
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! { as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y --no-install-recommends $missing; } > "$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "apt could not install:$missing; the whole log is $log" >&2
    exit 1
  fi
  rm -f "$log"
}

answers() { as_root virsh -q -c qemu:///system uri > /dev/null 2>&1; }

libvirtd() {
  answers && return
  echo "starting libvirtd"
  if [ -d /run/systemd/system ]; then
    as_root systemctl start libvirtd
  else
    as_root /usr/sbin/virtlogd --daemon || true
    as_root /usr/sbin/libvirtd --daemon
  fi
  for _ in $(seq 100); do
    answers && return
    sleep 0.1
  done
  echo "libvirtd was started and does not answer at qemu:///system: see /var/log/libvirt" >&2
  exit 1
}

case "${1:-}" in
  packages | libvirtd) "$1" ;;
  *) echo "usage: $0 packages | libvirtd" >&2; exit 2 ;;
esac
