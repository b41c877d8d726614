#!/usr/bin/env bash
# Runs every command of docs/production.md, in the page's order, each on the machine that its block names: nine machines that
# systemd-nspawn boots, on one bridge in a network namespace of their own. walk/walk.py reads the page and checks what it reached.
#
#   deploy/test/walk.sh
#
# Needs: root; Debian 12; Debian's mirror; 4 GB of disk. Installs missing packages by name.
# Takes: ten minutes, the first time twenty.
#
# The machines have no other network. They begin as a minimal Debian 12 with ssh; what a block installs with apt comes from a
# folder in each machine, in which the Debian packages of $DEBIAN lie with all that they depend on. The blocks of the machine
# `build` run on this machine, in this tree.
# $WORK (default build/walk) keeps the base tree for the next run, and the machines' trees and consoles (machines/NAME) until
# then. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs root debian disk:4
DEBIAN="postgresql nginx prometheus prometheus-alertmanager"
work=${WORK:-$PWD/build/walk}
mkdir -p "$work"
work=$(realpath "$work")
# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD mmdebstrap systemd-container dpkg-dev git iproute2 openssh-client python3

# What the packages of this tree depend on, too. They are built here only for that: the walk builds them again, as the page says.
export WITHOUT_CLIENT=1
deploy/release.sh "$work/packages" >/dev/null
depends=$(for package in "$work"/packages/*.deb; do dpkg-deb -f "$package" Depends; done | tr ',' '\n' |
  sed 's/([^)]*)//g; s/|.*//; s/ //g' | sort -u | paste -sd' ')
if [ "$(cat "$work/base.packages" 2>/dev/null)" != "$DEBIAN $depends" ]; then
  echo "making the base tree" >&2
  rm -rf "$work/base"
  mmdebstrap --quiet --mode=root --variant=minbase --skip=cleanup/apt \
    --include=systemd-sysv,dbus,libnss-systemd,openssh-server,openssh-client,openssl,ca-certificates,curl,iproute2,procps \
    --customize-hook="chroot \"\$1\" apt-get install -qq --no-install-recommends --download-only $DEBIAN $depends >/dev/null" \
    bookworm "$work/base"
  mkdir "$work/base/srv/debian"
  mv "$work"/base/var/cache/apt/archives/*.deb "$work/base/srv/debian"
  (cd "$work/base/srv/debian" && dpkg-scanpackages . >Packages 2>/dev/null)
  rm -rf "$work/base/etc/apt/sources.list.d" "$work"/base/var/lib/apt/lists/*
  echo 'deb [trusted=yes] file:/srv/debian ./' >"$work/base/etc/apt/sources.list"
  echo force-unsafe-io >"$work/base/etc/dpkg/dpkg.cfg.d/quick" # nothing of the machines has to outlive a power cut
  echo "$DEBIAN $depends" >"$work/base.packages"
fi
exec unshare --net --mount python3 deploy/test/walk/walk.py "$work"
