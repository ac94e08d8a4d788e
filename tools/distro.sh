#!/bin/bash
# distro.sh RELEASE...: .distro/RELEASE, a root of that release of Debian with what the package needs, and nothing else.
# Called by make distro-test. A mirror may be older than its lists say they hold, and unstable's hold for a week.
set -euo pipefail
cd "$(dirname "$0")/.."

needs="ca-certificates,libvirt0,python3,systemd"

for release in "$@"; do
  root=.distro/$release
  [ "$(cat "$root.needs" 2> /dev/null)" = "$needs" ] && continue
  echo "making $root, about a minute"
  rm -rf "$root"
  mkdir -p .distro
  if ! mmdebstrap --quiet --variant=minbase --include="$needs" \
      --aptopt='Acquire::Check-Valid-Until "false"' "$release" "$root" > "$root.log" 2>&1; then
    tail -n 10 "$root.log" >&2
    echo "mmdebstrap could not make $root; the whole log is $root.log" >&2
    exit 1
  fi
  echo "$needs" > "$root.needs"
done
