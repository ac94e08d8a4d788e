#!/bin/bash
# deb.sh PYTHON: build/compute-node-agent_VERSION_ARCH.deb of the files of stage.sh. It is for the release of Debian and
# the Python that it is built with; tools/deb has what is Debian's of it.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
python=$1
read -r release < <(. /etc/os-release && echo "${ID:-}${VERSION_ID:-}")
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' agent/__init__.py)+${release/debian/deb}
arch=$(dpkg --print-architecture)
stage=build/deb
docs=$stage/usr/share/doc/compute-node-agent
deb=build/compute-node-agent_${version}_$arch.deb
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}

rm -rf $stage
tools/stage.sh "$python"
mv build/stage $stage
mkdir -p $stage/usr/share/lintian/overrides $stage/DEBIAN
cp tools/deb/copyright "$docs/"
cp tools/deb/lintian-overrides $stage/usr/share/lintian/overrides/compute-node-agent
built=$(date -R -d "@$SOURCE_DATE_EPOCH")
printf 'compute-node-agent (%s) unstable; urgency=medium\n\n  * As in the release notes of this version.\n\n -- %s  %s\n' \
  "$version" "$(sed -n 's/^Maintainer: //p' tools/deb/control)" "$built" | gzip -9n > "$docs/changelog.gz"

echo /etc/compute-node-agent/compute-node-agent.conf > $stage/DEBIAN/conffiles
cp tools/deb/{postinst,prerm,postrm} $stage/DEBIAN/
chmod 755 $stage/DEBIAN/{postinst,prerm,postrm}
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
sed -e "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@PYTHON@/3.$minor/; s/@NEXT@/3.$((minor + 1))~/" \
  -e "s/@SIZE@/$(du -sk --exclude=DEBIAN $stage | cut -f1)/" tools/deb/control > $stage/DEBIAN/control
(cd $stage && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | xargs -0 md5sum) > $stage/DEBIAN/md5sums
dpkg-deb --root-owner-group --build $stage "$deb" > /dev/null
echo "$deb"
