#!/usr/bin/env bash
# A dump is restored while agents work and a container has a newer release, as docs/production.md says: the SQL that is run is
# that of the page. What was answered after the dump is forgotten; nothing that agents still send for it is accepted.
#
#   deploy/test/backup.sh
#
# Needs: the packages of deploy/packages.sh (as root it installs those that are missing).
# Takes: a minute, and the build (two cores: five minutes).
#
# PostgreSQL is private and listens on sockets in a temporary folder, the servers on free ports of 127.0.0.1. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs debian
packages_install python3
programs_build build/backup.log
exec python3 deploy/test/database.py backup
