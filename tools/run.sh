#!/bin/bash
# The main job on this host, against a placement of its own in .run/: discover, plan, sync, show.
set -euo pipefail
cd "$(dirname "$0")/.."
agent=.venv/bin/compute-node-agent
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

mkdir -p .run
# Guests of this demonstration are emulated where the host cannot do KVM.
[ -e /dev/kvm ] && virt_type=kvm || virt_type=qemu
printf '[libvirt]\nvirt_type = %s\n' "$virt_type" > .run/agent.conf
options=(--config-file .run/agent.conf --embedded-dir .run)

step() { printf '\n== %s\n' "$1"; }
step "discover: what this host has"
as_root $agent discover --config-file .run/agent.conf
step "plan: what would change in placement"
code=0
as_root $agent plan "${options[@]}" || code=$?
[ $code = 0 ] || [ $code = 3 ] || exit $code
step "sync: write it"
as_root $agent sync "${options[@]}"
step "show: read back from placement"
as_root $agent show "${options[@]}"
cat << TXT

Next, for instance:
  make run                                          again: nothing needs to change
  $agent discover --format json
  $agent check --config-file .run/agent.conf --embedded-dir .run
  $agent record my-host; $agent discover --host my-host
  $agent plan --config-file /etc/nova/nova.conf     against your cloud; writes nothing
(as root, or as a user of the group libvirt)
TXT
