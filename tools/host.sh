#!/bin/bash
# What this host needs outside the virtual environment.
#   host.sh packages   install, by apt, what is missing
#   host.sh venv       install, by apt, what makes a virtual environment, where Debian's Python lacks it
#   host.sh databases  install, by apt, the databases that tests run placement and agents on
#   host.sh manual     install, by apt, what reads manual pages and completes commands, as a host has it
#   host.sh logins     install, by apt, what tests log in to libvirtd with, by SASL
#   host.sh containers install, by apt, what boots a systemd of its own
#   host.sh cloud      install, by apt, what a nova cloud needs beside databases
#   host.sh roots      install, by apt, what makes and checks packages of several releases of Debian
#   host.sh rpm        install, by apt, what builds and checks an rpm
#   host.sh storage    install, by apt, Ceph and LVM
#   host.sh checker    install, by apt, the model checker SPIN, and the compiler that it needs
#   host.sh browser    install, by apt, a browser and what counts printed pages
#   host.sh libvirtd   start libvirtd where none runs, with or without systemd
set -euo pipefail

PACKAGES="libvirt-daemon-system libvirt-clients libvirt-dev qemu-system-x86 qemu-utils pkg-config gcc libc6-dev
  python3-dev python3-venv util-linux iproute2"
VENV="python3-venv"
DATABASES="postgresql mariadb-server-core mariadb-client-core"
MANUAL="man-db bash-completion"
LOGINS="libsasl2-modules sasl2-bin"
CONTAINERS="systemd systemd-container dbus polkitd"
CLOUD="rabbitmq-server pciutils"
ROOTS="mmdebstrap lintian podman runc"
BROWSER="chromium poppler-utils fonts-dejavu-core"
RPM="rpm rpmlint"
STORAGE="ceph-mon ceph-mgr ceph-osd ceph-common python3-rados python3-rbd lvm2"

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Asked before anything whose output is put aside, so that a password can be typed and a refusal be read.
need_root() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo > /dev/null || { echo "$1 needs root: run make as root, or install sudo" >&2; exit 1; }
  sudo true || { echo "$1 needs root, and sudo refuses: run make as root" >&2; exit 1; }
}

packages() { install "$PACKAGES"; }

venv() { install "$VENV"; }

databases() { install "$DATABASES"; }

manual() { install "$MANUAL"; }

logins() { install "$LOGINS"; }

containers() { install "$CONTAINERS"; }

cloud() { install "$CLOUD"; }

roots() { install "$ROOTS"; }

rpm() { install "$RPM"; }

storage() { install "$STORAGE"; }
checker() { install "spin gcc libc6-dev"; }
browser() { install "$BROWSER"; }

install() {
  local missing="" package log
  for package in $1; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" = installed ] || missing+=" $package"
  done
  [ -z "$missing" ] && return
  echo "installing by apt:$missing"
  need_root "apt"
  log=$(mktemp)
  # shellcheck disable=SC2086
  # An update that fails in part may do; whether it did, the installation tells. Another apt is waited for.
  if ! { as_root apt-get update; as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends $missing; } > "$log" 2>&1; then
    grep -E '^(Err|E|W):' "$log" | head -n 8 >&2 || tail -n 20 "$log" >&2
    echo "apt could not install:$missing; the whole log is $log" >&2
    exit 1
  fi
  rm -f "$log"
}

answers() { as_root virsh -q -c qemu:///system uri > /dev/null 2>&1; }

libvirtd() {
  need_root "libvirtd"
  answers && return
  echo "starting libvirtd"
  if [ -d /run/systemd/system ]; then
    as_root systemctl start libvirtd
  else
    as_root /usr/sbin/virtlogd --daemon 2> /dev/null || true  # it may run already
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
  packages | venv | databases | manual | logins | containers | cloud | roots | rpm | storage | checker | browser | libvirtd) "$1" ;;
  *)
    echo "usage: $0 packages | venv | databases | manual | logins | containers | cloud | roots | rpm | storage | checker | browser | libvirtd" >&2
    exit 2
    ;;
esac
