#!/bin/bash
# image.sh DEB: build/compute-node-agent_VERSION_ARCH.oci.tar, an image with this package on a small root of the Debian
# that the package was built on. IMAGE_PACKAGES adds packages by name, with commas: ceph-common on a Ceph host.
set -euo pipefail
cd "$(dirname "$0")/.."
deb=$1
image=${deb%.deb}.oci.tar
name=$(basename "$deb")
read -r release < <(. /etc/os-release && echo "$VERSION_CODENAME")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Pages for people are left out; copyright files stay, and what configuration files are made of.
if ! mmdebstrap --quiet --variant=minbase --include=ca-certificates,libsasl2-modules,libvirt0,passwd,python3,systemd-standalone-sysusers"${IMAGE_PACKAGES:+,$IMAGE_PACKAGES}" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-include=/usr/share/doc/compute-node-agent/*.conf*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook="copy-in $deb /tmp" --customize-hook="chroot \"\$1\" dpkg -i /tmp/$name" \
    --customize-hook='rm -rf "$1"/tmp/* "$1"/var/lib/apt/lists/* "$1"/var/cache/*' \
    "$release" "$work/root.tar" > "$work/log" 2>&1; then
  tail -n 20 "$work/log" >&2
  echo "mmdebstrap could not make the image" >&2
  exit 1
fi
.venv/bin/python tools/oci.py "$work/root.tar" "$image" "$(dpkg-deb -f "$deb" Version)" "$(dpkg-deb -f "$deb" Architecture)"
echo "$image"
