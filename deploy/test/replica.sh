#!/usr/bin/env bash
# The primary of a streaming replica is lost, the replica is promoted, and the servers follow by their connection string, which
# names both hosts and target_session_attrs=read-write; then the lost machine comes back as a replica.
#
#   deploy/test/replica.sh
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
programs_build build/replica.log
exec python3 deploy/test/database.py replica
