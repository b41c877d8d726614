#!/usr/bin/env bash
# Builds the Debian packages, checks them with lintian, builds them and the wheel again elsewhere and compares, then installs, uses,
# upgrades, removes and purges the packages in a machine that systemd-nspawn boots.
#
#   deploy/test/packages.sh
#
# Needs: root; Debian 12; Debian's mirror; 2 GB of disk. Installs missing packages by name.
# Takes: three to ten minutes, on a busy machine half an hour.
#
# The machine has PostgreSQL, the server, and an agent that tunes a kernel on the CPU. It has no network but its own loopback.
# $WORK (default build/packages-test) keeps its tree for the next run. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs root debian disk:2
work=${WORK:-$PWD/build/packages-test}
mkdir -p "$work"
work=$(realpath "$work")
# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD mmdebstrap systemd-container lintian git

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export WITHOUT_CLIENT=1 SOURCE_DATE_EPOCH CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER:-}
next=99.0.1

echo "== build"
check "the packages are built" env BUILD="$work/build" deploy/release.sh "$work/old"
version=$(dpkg-deb -f "$(echo "$work"/old/wavetune_*.deb)" Version)
stat -c "   %n %s bytes" "$work"/old/*.deb | sed "s,$work/old/,,"
check "SHA256SUMS matches" sh -c "cd '$work/old' && sha256sum -c SHA256SUMS"
check "lintian finds no error" lintian --allow-root --fail-on error "$work"/old/*.deb
lintian --allow-root --fail-on none "$work"/old/*.deb | sed 's/^/   /' || true

# The same files in another folder, with another umask, zone and locale, and without a cache of compiled files.
rm -rf "$work/elsewhere"
mkdir -p "$work/elsewhere"
git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
  tar --null -T - -c | tar -x -C "$work/elsewhere"
build_elsewhere() (
  umask 077
  export TZ=Asia/Tokyo LC_ALL=C CMAKE_C_COMPILER_LAUNCHER=''
  cd "$work/elsewhere" && deploy/release.sh "$work/again"
)
check "they are built again in another folder" build_elsewhere
check "both builds are the same, byte for byte" cmp "$work/old/SHA256SUMS" "$work/again/SHA256SUMS"
check "a next version is built" env BUILD="$work/build-next" WAVETUNE_VERSION=$next deploy/release.sh "$work/next"
check "its wheel has that version" test -s "$work/next/wavetune-$next-py3-none-any.whl"
# Its configuration differs from the old one's, so that dpkg has to decide.
server=$(echo "$work"/next/wavetune-server_*.deb)
dpkg-deb -R "$server" "$work/unpacked"
echo '# A line of the next version.' >>"$work/unpacked/etc/wavetune/server.env"
sed -i '\,etc/wavetune,d' "$work/unpacked/DEBIAN/md5sums"
dpkg-deb --root-owner-group -b "$work/unpacked" "$server" >/dev/null
rm -rf "$work/unpacked" "$work/elsewhere"

echo "== the machine"
depends=$(for package in "$work"/old/*.deb; do dpkg-deb -f "$package" Depends; done | tr ',' '\n' |
  sed 's/([^)]*)//g; s/|.*//; s/ //g' | sort -u | paste -sd,)
if [ "$(cat "$work/root.depends" 2>/dev/null)" != "$depends" ]; then
  rm -rf "$work/root"
  mmdebstrap --quiet --mode=root --variant=minbase \
    --include="systemd-sysv,dbus,postgresql,curl,procps,man-db,bash-completion,$depends" bookworm "$work/root"
  echo "$depends" >"$work/root.depends"
fi
io=$work/io
rm -rf "$io"
mkdir -p "$io"
cp -r "$work/old" "$work/next" deploy/test/checks.sh deploy/test/packages/in_machine.sh "$io"
chmod 755 "$io/in_machine.sh"
printf '[Unit]\nAfter=multi-user.target postgresql.service\n[Service]\nType=oneshot\nExecStart=/io/in_machine.sh\n%s' \
  $'StandardOutput=file:/io/result.txt\nStandardError=file:/io/errors.txt\n' >"$io/wavetune-test.service"
printf '[Timer]\nOnActiveSec=0\n[Install]\nWantedBy=multi-user.target\n' >"$io/wavetune-test.timer"
ln -sf ../wavetune-test.timer "$work/root/etc/systemd/system/multi-user.target.wants/wavetune-test.timer"
timeout -k 5 900 systemd-nspawn -q -D "$work/root" --volatile=overlay --private-network --register=no --keep-unit \
  --machine=wavetune-packages --bind="$io:/io" --bind-ro="$io/wavetune-test.service:/etc/systemd/system/wavetune-test.service" \
  --bind-ro="$io/wavetune-test.timer:/etc/systemd/system/wavetune-test.timer" -b </dev/null >"$work/console.txt" 2>&1 || true
grep -v '^DONE$\|passed,' "$io/result.txt" || true
checks_passed=$((checks_passed + $(grep -c '^ok ' "$io/result.txt" || true)))
checks_failed=$((checks_failed + $(grep -c '^NOT OK ' "$io/result.txt" || true)))
check "the machine came to its end" grep -qx DONE "$io/result.txt"
[ "$checks_failed" -eq 0 ] || echo "see $io/errors.txt, $io/journal.txt and $work/console.txt"
echo "versions $version and $next"
checks_end
