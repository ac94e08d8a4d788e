#!/bin/bash
# The collection in ansible/ as Ansible's own tools judge it, from an environment of its own in .fleet/.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! .fleet/bin/ansible-lint --version > /dev/null 2>&1; then
  echo "making .fleet with ansible-lint and antsibull-changelog"
  rm -rf .fleet
  python3 -m venv .fleet
  .fleet/bin/pip install -q 'ansible-core>=2.18.1,<2.20' 'ansible-lint>=26,<27' 'antsibull-changelog>=0.36,<1'
fi
# Its tools want a collection where Ansible would install it.
place=build/collections/ansible_collections/compute_node_agent/fleet
rm -rf build/collections
mkdir -p "$place"
cp -r ansible/. "$place"
export PATH="$PWD/.fleet/bin:$PATH" ANSIBLE_COLLECTIONS_PATH="$PWD/build/collections"
cd "$place"
antsibull-changelog lint
ansible-lint --nocolor --offline --strict .
git init -q . && git add -A  # ansible-test looks at the files that git knows
# It fetches a script that installs pip into environments of its own, from a server that may be out of reach.
export HOME="$OLDPWD/.fleet/home"
mkdir -p "$HOME/.ansible/test/cache"
echo 'import ensurepip; ensurepip.bootstrap()' > "$HOME/.ansible/test/cache/get_pip_24_2.py"
ansible-test sanity --requirements --color no --python "$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
