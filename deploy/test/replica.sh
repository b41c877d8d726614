#!/usr/bin/env bash
# The primary of a streaming replica is lost, the replica is promoted, and the servers follow by their connection string, which
# names both hosts and target_session_attrs=read-write; then the lost machine comes back as a replica.
#
#   deploy/test/replica.sh
#
# Needs the packages of deploy/packages.sh (it installs those that are missing) and a minute besides the build; it is not in CI. PostgreSQL is
# private and listens on sockets in a temporary folder, the servers on free ports of 127.0.0.1.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
packages_install python3
programs_build build/replica.log
exec python3 deploy/test/database.py replica
