#!/bin/bash
# stage.sh PYTHON: build/stage with all files that the packages have in common, and the only list of them; deb.sh and
# rpm.sh take it away, and add what is theirs. The agent is in a virtual environment of its own, for just this Python.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
# By its full name, as /usr/bin/python3 may be another one where the package goes.
python=$("$1" -c 'import os, sys; print(os.path.realpath(sys.executable))')
stage=build/stage
home=usr/lib/compute-node-agent
docs=$stage/usr/share/doc/compute-node-agent

rm -rf $stage build/manual
mkdir -p $stage/usr/{bin,lib/systemd/system} $stage/usr/lib/{sysusers.d,tmpfiles.d,firewalld/services} \
  $stage/usr/share/polkit-1/rules.d $stage/etc/compute-node-agent "$docs"
"$python" -m venv $stage/$home
log=$(mktemp)
# An identity of the build, from the name of a temporary folder, would make each build another one.
export LDFLAGS=-Wl,--build-id=none
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
# Nor are pip's lists of files right any more: programs are stripped, and paths in scripts changed.
find $stage/$home \( -name __pycache__ -o -path '*.dist-info/RECORD' \) -prune -exec rm -rf {} +
find $stage/$home -name '*.so*' -type f -exec strip --strip-unneeded {} + 2> /dev/null || true
chmod -R u=rwX,go=rX $stage/$home
ln -s ../lib/compute-node-agent/bin/compute-node-agent $stage/usr/bin/compute-node-agent

cp systemd/*.service $stage/usr/lib/systemd/system/
cp systemd/compute-node-agent.sysusers $stage/usr/lib/sysusers.d/compute-node-agent.conf
cp systemd/compute-node-agent.tmpfiles $stage/usr/lib/tmpfiles.d/compute-node-agent.conf
cp systemd/compute-node-agent.rules $stage/usr/share/polkit-1/rules.d/60-compute-node-agent.rules
cp etc/firewalld/compute-node-agent.xml $stage/usr/lib/firewalld/services/
cp etc/compute-node-agent/compute-node-agent.conf $stage/etc/compute-node-agent/
cp -r etc/compute-node-agent/compute-node-agent.conf.sample etc/compute-node-agent/examples etc/prometheus etc/grafana \
  README.md docs "$docs/"
grep -v -E '^(#|output_file)' etc/compute-node-agent/generator.conf > "$docs/generator.conf"
mkdir -p $stage/usr/share/{man/man8,bash-completion/completions,zsh/vendor-completions}
gzip -9n build/manual/man8/*.8
mv build/manual/man8/*.8.gz $stage/usr/share/man/man8/
mv build/manual/bash/compute-node-agent $stage/usr/share/bash-completion/completions/
mv build/manual/zsh/_compute-node-agent $stage/usr/share/zsh/vendor-completions/
