#!/bin/bash
# The main job on this host, against a placement of its own in .run/: discover, plan, sync, show.
set -euo pipefail
cd "$(dirname "$0")/.."
agent=.venv/bin/compute-node-agent
[ "$(id -u)" = 0 ] && sudo="" || sudo="sudo "

mkdir -p .run
# Guests of this demonstration are emulated where libvirt offers no KVM: no /dev/kvm, or one that does not open.
virt_type=kvm
${sudo}virsh -q -c qemu:///system domcapabilities --virttype kvm > /dev/null 2>&1 || virt_type=qemu
printf '[libvirt]\nvirt_type = %s\n' "$virt_type" > .run/agent.conf
options=(--config-file .run/agent.conf --embedded-dir .run)

step() { printf '\n== %s\n' "$1"; }
step "discover: what this host has"
$sudo$agent discover --config-file .run/agent.conf
step "plan: what would change in placement"
code=0
$sudo$agent plan "${options[@]}" || code=$?
[ $code = 0 ] || [ $code = 3 ] || exit $code
step "sync: write it"
$sudo$agent sync "${options[@]}"
step "show: read back from placement"
$sudo$agent show "${options[@]}"
cat << TXT

Next, for instance:
  make run                                          again: nothing needs to change
  $sudo$agent discover --config-file .run/agent.conf --format json
  $sudo$agent check --config-file .run/agent.conf --embedded-dir .run
  $sudo$agent reshape --to numa --config-file .run/agent.conf --embedded-dir .run
  $sudo$agent audit --config-file .run/agent.conf --embedded-dir .run
  $sudo$agent record my-host --config-file .run/agent.conf
  $sudo$agent discover --host my-host --config-file .run/agent.conf
  $sudo$agent plan --config-file /etc/nova/nova.conf     against your cloud; writes nothing
TXT
