#!/usr/bin/env bash
# Two servers of an older version are replaced one after the other by those of this tree, with clients and agents at work, and
# then the agents. No command of a client may fail.
#
#   deploy/test/upgrade.sh [COMMIT]     the older version; default: the first whose agents know several URLs
#
# Needs: the packages of deploy/packages.sh (as root it installs those that are missing).
# Takes: a minute, and two builds (two cores: five minutes each).
#
# PostgreSQL is private and listens on sockets in a temporary folder, the servers on free ports of 127.0.0.1. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs debian
packages_install python3 git
programs_build build/upgrade.log
old=${1:-6f1344b0}
old=$(git rev-parse "$old")
source=build/upgrade-source
[ ! -e "$source" ] || git worktree remove --force "$source"
git worktree add -q --detach "$source" "$old"
trap 'git worktree remove --force "$source"' EXIT
(cd "$source" && cmake --preset release -B ../upgrade-old && cmake --build ../upgrade-old --target wavetune wavetune-agent wavetune-server) \
  >build/upgrade.log || { tail -50 build/upgrade.log; exit 1; }
echo "from $(git log -1 --format='%h (%s)' "$old") to this tree"
OLD_BUILD=$PWD/build/upgrade-old python3 deploy/test/database.py upgrade
