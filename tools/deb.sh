#!/bin/bash
# deb.sh PYTHON: build/compute-node-agent_VERSION_ARCH.deb with the agent in a virtual environment of its own. It is for
# the release of Debian and the Python that it is built with; tools/deb has what is Debian's of it.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
read -r release < <(. /etc/os-release && echo "${ID:-}${VERSION_ID:-}")
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' agent/__init__.py)+${release/debian/deb}
arch=$(dpkg --print-architecture)
home=usr/lib/compute-node-agent
stage=build/deb
docs=$stage/usr/share/doc/compute-node-agent
deb=build/compute-node-agent_${version}_$arch.deb

rm -rf $stage build/manual
mkdir -p $stage/usr/{bin,lib/systemd/system} $stage/usr/lib/{sysusers.d,tmpfiles.d} $stage/usr/share/polkit-1/rules.d \
  $stage/usr/share/lintian/overrides $stage/etc/compute-node-agent "$docs" $stage/DEBIAN
"$python" -m venv $stage/$home
log=$(mktemp)
# Nothing but what tools/lock.sh locked, by its hashes; setuptools first, which builds what has no wheel.
if ! { sed -n '/^setuptools==/,/[^\\]$/p' tools/deb/requirements.txt > "$log.first" &&
    $stage/$home/bin/python -m pip install --require-hashes --no-deps -r "$log.first" &&
    $stage/$home/bin/python -m pip install --require-hashes --no-build-isolation -r tools/deb/requirements.txt &&
    $stage/$home/bin/python -m pip install --no-build-isolation --no-deps .; } > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "pip could not install; the whole log is $log" >&2
  exit 1
fi
rm -f "$log" "$log.first"
$stage/$home/bin/python tools/manual.py build/manual
# The package is not changed by pip later, and the environment was made in another place than it will live in.
$stage/$home/bin/python -m pip uninstall -q -y argparse-manpage shtab setuptools pip 2> /dev/null
rm -f $stage/$home/bin/{activate*,Activate*} $stage/$home/.gitignore \
  $stage/$home/lib/python3.*/site-packages/oslo_config/sources/templates/bash-completion.template
grep -rlI "$PWD/$stage" $stage/$home/bin $stage/$home/pyvenv.cfg | xargs sed -i "s#$PWD/$stage##g"
find $stage/$home -name __pycache__ -prune -exec rm -rf {} +
find $stage/$home -name '*.so*' -type f -exec strip --strip-unneeded {} + 2> /dev/null || true
chmod -R u=rwX,go=rX $stage/$home
ln -s ../lib/compute-node-agent/bin/compute-node-agent $stage/usr/bin/compute-node-agent

cp systemd/*.service $stage/usr/lib/systemd/system/
cp systemd/compute-node-agent.sysusers $stage/usr/lib/sysusers.d/compute-node-agent.conf
cp systemd/compute-node-agent.tmpfiles $stage/usr/lib/tmpfiles.d/compute-node-agent.conf
cp systemd/compute-node-agent.rules $stage/usr/share/polkit-1/rules.d/60-compute-node-agent.rules
cp etc/compute-node-agent/compute-node-agent.conf $stage/etc/compute-node-agent/
cp -r etc/compute-node-agent/compute-node-agent.conf.sample etc/compute-node-agent/examples etc/prometheus etc/grafana \
  README.md docs "$docs/"
mkdir -p $stage/usr/share/{man/man8,bash-completion/completions,zsh/vendor-completions}
gzip -9n build/manual/man8/*.8
mv build/manual/man8/*.8.gz $stage/usr/share/man/man8/
mv build/manual/bash/compute-node-agent $stage/usr/share/bash-completion/completions/
mv build/manual/zsh/_compute-node-agent $stage/usr/share/zsh/vendor-completions/
cp tools/deb/copyright "$docs/"
cp tools/deb/lintian-overrides $stage/usr/share/lintian/overrides/compute-node-agent
built=$(date -R -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}")
printf 'compute-node-agent (%s) unstable; urgency=medium\n\n  * As in the release notes of this version.\n\n -- %s  %s\n' \
  "$version" "$(sed -n 's/^Maintainer: //p' tools/deb/control)" "$built" | gzip -9n > "$docs/changelog.gz"

echo /etc/compute-node-agent/compute-node-agent.conf > $stage/DEBIAN/conffiles
cp tools/deb/{postinst,prerm,postrm} $stage/DEBIAN/
chmod 755 $stage/DEBIAN/{postinst,prerm,postrm}
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
sed -e "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@PYTHON@/3.$minor/; s/@NEXT@/3.$((minor + 1))~/" \
  -e "s/@SIZE@/$(du -sk --exclude=DEBIAN $stage | cut -f1)/" tools/deb/control > $stage/DEBIAN/control
(cd $stage && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | xargs -0 md5sum) > $stage/DEBIAN/md5sums
chmod -R g-w,o-w $stage
dpkg-deb --root-owner-group --build $stage "$deb" > /dev/null
echo "$deb"
