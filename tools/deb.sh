#!/bin/bash
# deb.sh PYTHON: build/compute-node-agent_VERSION_ARCH.deb with the agent in a virtual environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' agent/__init__.py)
arch=$(dpkg --print-architecture)
home=usr/lib/compute-node-agent
stage=build/deb
deb=build/compute-node-agent_${version}_$arch.deb

rm -rf $stage
mkdir -p $stage/usr/{bin,lib} $stage/lib/systemd/system $stage/usr/lib/{sysusers.d,tmpfiles.d} $stage/usr/share/polkit-1/rules.d \
  $stage/etc/compute-node-agent $stage/usr/share/doc/compute-node-agent $stage/DEBIAN
"$python" -m venv $stage/$home
log=$(mktemp)
if ! $stage/$home/bin/python -m pip install ".[libvirt,ironic]" > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "pip could not install; the whole log is $log" >&2
  exit 1
fi
rm -f "$log"
# The environment was made in another place than it will live in.
grep -rlI "$PWD/$stage" $stage/$home/bin $stage/$home/pyvenv.cfg | xargs sed -i "s#$PWD/$stage##g"
find $stage/$home -name __pycache__ -prune -exec rm -rf {} +
ln -s /$home/bin/compute-node-agent $stage/usr/bin/compute-node-agent
cp systemd/*.service $stage/lib/systemd/system/
cp systemd/compute-node-agent.sysusers $stage/usr/lib/sysusers.d/compute-node-agent.conf
cp systemd/compute-node-agent.rules $stage/usr/share/polkit-1/rules.d/60-compute-node-agent.rules
cp systemd/compute-node-agent.tmpfiles $stage/usr/lib/tmpfiles.d/compute-node-agent.conf
cp etc/compute-node-agent/compute-node-agent.conf.sample README.md $stage/usr/share/doc/compute-node-agent/
cp -r docs $stage/usr/share/doc/compute-node-agent/
cp -r etc/prometheus etc/grafana $stage/usr/share/doc/compute-node-agent/ 2> /dev/null || true
cat > $stage/DEBIAN/control <<C
Package: compute-node-agent
Version: $version
Architecture: $arch
Maintainer: The compute-node-agent developers <nobody@localhost>
Depends: python3 (>= 3.11), python3 (<< 3.12), libvirt0, systemd
Recommends: libvirt-daemon-system
Section: net
Priority: optional
Description: reports a host to OpenStack placement as one provider tree
 The agent of hypervisors and of bare metal, with the service and its units.
C
cat > $stage/DEBIAN/postinst <<'C'
#!/bin/sh
set -e
systemd-sysusers compute-node-agent.conf
systemd-tmpfiles --create compute-node-agent.conf
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  # After an upgrade a service that runs is started anew, and before it the conversion that is allowed or was approved.
  systemctl try-restart compute-node-agent.service || true
fi
C
cat > $stage/DEBIAN/prerm <<'C'
#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then systemctl stop compute-node-agent.service; fi
C
chmod 755 $stage/DEBIAN/postinst $stage/DEBIAN/prerm
dpkg-deb --root-owner-group --build $stage "$deb" > /dev/null
echo "$deb"
