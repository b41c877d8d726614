#!/usr/bin/env bash
# Builds what a release consists of: the Debian packages for the Debian or Ubuntu that this runs on, the Python wheel, the client
# and a wheel with client and agent for every distribution (deploy/client/build.sh; WITHOUT_CLIENT=1 leaves these two out), and
# SHA256SUMS.
#
#   deploy/release.sh [FOLDER]        default: build/release-VERSION
#
#   WAVETUNE_VERSION      another version than that of the tree
#   WAVETUNE_MAINTAINER   who answers for the packages: NAME <ADDRESS>
#   WAVETUNE_PROJECT_URL  where bugs are reported
#   SOURCE_DATE_EPOCH     the time in all files (default: that of the last commit). Two builds of the same files with the same
#                         time are the same, byte for byte, wherever the source is (deploy/test/packages.sh)
#   BUILD                 the folder to build in (default: build/package)
#
# Installs missing Debian packages by name.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/packages.sh
umask 022
# A ccache with a base_dir would write other paths of sources into programs.
export LC_ALL=C.UTF-8 TZ=UTC CCACHE_BASEDIR=

# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD dpkg-dev gzip python3
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
build=$(realpath -m "${BUILD:-build/package}")

mkdir -p "$build"
rm -f "$build"/*.deb
cmake --preset package -B "$build" -DWAVETUNE_VERSION="${WAVETUNE_VERSION:-}" -DWAVETUNE_PROJECT_URL="${WAVETUNE_PROJECT_URL:-}" \
  ${WAVETUNE_MAINTAINER:+-DWAVETUNE_MAINTAINER="$WAVETUNE_MAINTAINER"} >"$build.log" || { cat "$build.log"; exit 1; }
cmake --build "$build" >>"$build.log" || { tail -50 "$build.log"; exit 1; }
(cd "$build" && cpack) >>"$build.log" || { tail -50 "$build.log"; exit 1; }

version=$("$build/wavetune" --version | sed -n '1s/.* //p')
to=$(realpath -m "${1:-build/release-$version}")
mkdir -p "$to"
rm -f "$to"/*.deb "$to"/*.tar.gz "$to"/*.whl
cp "$build"/*_"$version"_*.deb "$to"
programs=()
if [ -z "${WITHOUT_CLIENT:-}" ]; then
  deploy/client/build.sh build/client >&2
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C build/client -c wavetune LICENSES |
    gzip -9n >"$to/wavetune-$version-linux-x86_64.tar.gz"
  programs=(--programs build/client)
fi
deploy/wheel.py "$to" --version "$version" "${programs[@]}"
(cd "$to" && find . \( -name '*.deb' -o -name '*.tar.gz' -o -name '*.whl' \) -printf '%P\n' | LC_ALL=C sort | xargs sha256sum -- >SHA256SUMS &&
  cat SHA256SUMS)
