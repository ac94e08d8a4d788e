#!/bin/bash
# rpm.sh PYTHON: build/compute-node-agent_VERSION-1.py3MINOR.ARCH.rpm of the files of stage.sh, for Rocky and RHEL with
# this Python; tools/rpm has what is rpm's of it.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' agent/__init__.py)
minor=$("$1" -c 'import sys; print(sys.version_info.minor)')
stage=build/rpm
share=$stage/usr/share
state=/var/lib/compute-node-agent
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}

rm -rf $stage
tools/stage.sh "$1"
mv build/stage $stage
mkdir -p $share/licenses/compute-node-agent $stage$state
cp LICENSE $share/licenses/compute-node-agent/
# Where that zsh looks.
mv $share/zsh/vendor-completions $share/zsh/site-functions
# All files, and the folders that are the agent's alone; the spec has those with an owner of their own.
find $stage -mindepth 1 \( ! -type d -o -path '*/compute-node-agent' -o -path '*/compute-node-agent/*' \) \
  ! -path "$stage$state" ! -path "$share/licenses/*" ! -path "$stage/etc/*.conf" -printf '%y "/%P"\n' |
  sed 's/^d /%dir /; s/^[^%] //' > build/rpm.files
log=$(mktemp)
if ! rpmbuild -bb --define "_topdir $PWD/build/rpmbuild" --define "_rpmdir $PWD/build" --define "_rpmfilename %%{NVRA}.rpm" \
    --define "version $version" --define "minor $minor" --define "stage $PWD/$stage" \
    --define "listed $PWD/build/rpm.files" --define "built $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" \
    tools/rpm/compute-node-agent.spec > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "rpmbuild could not build; the whole log is $log" >&2
  exit 1
fi
sed -n 's/^Wrote: .*\/build\//build\//p' "$log"
rm -rf "$log" build/rpmbuild
