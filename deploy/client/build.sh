#!/usr/bin/env bash
# Builds one client, `wavetune`, and one agent, `wavetune-agent`, that run on any x86-64 Linux since Debian 11 (glibc 2.31): RHEL 9,
# Ubuntu 20.04 and later.
#
#   deploy/client/build.sh [--static] [FOLDER]      makes FOLDER/wavetune, wavetune-agent and LICENSES; default: build/client
#
# --static: builds a client alone, with the C library, this machine's, in it too (default folder: build/client-static), for images
# that have none: FROM scratch. It finds hosts by /etc/hosts and /etc/resolv.conf. Use it nowhere else: where nsswitch.conf names
# other modules, it would load them with a C library of another version. An agent must load GPUs' libraries and compiled kernels.
#
# libcurl, OpenSSL, libarchive, zlib, jansson, libelf, msgpack-c and libseccomp are linked statically, from the sources of
# this machine's Debian with its security updates; the only shared libraries are those of libc6. The headers and the C library
# that programs are linked against are Debian 11's, unpacked into FOLDER/sysroot. CA certificates are searched for at run time,
# where Debian, Ubuntu and RHEL have them.
#
#   SOURCE_DATE_EPOCH, WAVETUNE_VERSION, WAVETUNE_PROJECT_URL    as for deploy/release.sh
#
# Needs Debian 12, its mirror (60 MB), and for the first time five minutes; libraries that are built are kept. Installs missing
# Debian packages by name.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
umask 022
# A ccache with a base_dir would write other paths of sources into programs.
export LC_ALL=C.UTF-8 TZ=UTC CCACHE_BASEDIR=
packages_install build-essential cmake ninja-build pkg-config mmdebstrap dpkg-dev autoconf automake libtool gperf gettext git
source=$PWD
static=''
if [ "${1:-}" = --static ]; then
  static=1
  shift
fi
work=$(realpath -m "${1:-build/client${static:+-static}}")
mkdir -p "$work"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
prefix=$work/libraries sysroot=$work/sysroot jobs=$(nproc)
logged() { "$@" >>"$work/build.log" 2>&1 || { tail -40 "$work/build.log" >&2; echo "failed: $*" >&2; exit 1; }; }
: >"$work/build.log"

# apt with lists of its own, of this machine's mirrors with their sources, so that its settings stay as they are. Sorted by suite:
# apt takes a source from the first that lists it, and the security archive lists sources that only the main one has.
mkdir -p "$work/apt/lists/partial" "$work/sources"
apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' | grep ' bookworm' | sort -k2 | uniq |
  while read -r mirror suite; do
    printf '%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' deb "$mirror" "$suite" deb-src "$mirror" "$suite"
  done >"$work/apt/sources.list"
apt_own() {
  local tool=$1
  shift
  "$tool" -o Dir::Etc::SourceList="$work/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::State::lists="$work/apt/lists" -o APT::Sandbox::User= "$@"
}

if [ -z "$static" ] && [ ! -e "$sysroot/.made" ]; then
  rm -rf "$sysroot"
  logged mmdebstrap --quiet --variant=extract --include=libc6-dev bullseye "$sysroot"
  logged apt_own apt-get update -qq
  # The kernel's headers of Debian 11 lack Landlock's.
  (cd "$work" && logged apt_own apt-get download -qq linux-libc-dev && dpkg-deb -x linux-libc-dev_*.deb "$sysroot")
  # An absolute link would lead out of the tree.
  find "$sysroot" -type l -lname '/*' | while read -r link; do
    ln -sfnr "$sysroot$(readlink "$link")" "$link"
  done
  touch "$sysroot/.made"
fi

# -B and -L: gcc would search the folders beside its own before the sysroot's.
libc=(--sysroot="$sysroot" -B"$sysroot/usr/lib/x86_64-linux-gnu" -L"$sysroot/usr/lib/x86_64-linux-gnu"
  -L"$sysroot/lib/x86_64-linux-gnu")
[ -z "$static" ] || libc=()
cat >"$work/cc" <<WRAPPER
#!/bin/sh
exec gcc ${libc[*]} -ffile-prefix-map=$work=. "\$@"
WRAPPER
chmod 755 "$work/cc"
export CC=$work/cc CFLAGS='-O2 -fPIC -fstack-protector-strong -D_FORTIFY_SOURCE=2'
export CPPFLAGS=-I$prefix/include LDFLAGS=-L$prefix/lib PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig

# library SOURCE_PACKAGE COMMAND…: fetches the source and builds it with COMMAND in its folder, once for each version.
library() {
  local package=$1 version folder
  shift
  # A mirror may list a version of the security archive that it does not have.
  for version in $(apt_own apt-cache showsrc "$package" | sed -n 's/^Version: //p' | sort -rV | uniq) none; do
    [ "$version" != none ] || { echo "no source of $package can be fetched" >&2; exit 1; }
    [ ! -e "$work/sources/$package-$version.built" ] || { versions+=("$package $version"); return 0; }
    rm -rf "$work/sources/$package"
    mkdir "$work/sources/$package"
    (cd "$work/sources/$package" && apt_own apt-get source -qq "$package=$version") >>"$work/build.log" 2>&1 && break
    echo "warning: $package $version, the newest one, cannot be fetched: do not publish what is built now" >&2
  done
  echo "building $package $version" >&2
  folder=$(find "$work/sources/$package" -mindepth 1 -maxdepth 1 -type d)
  (cd "$folder" && logged "$@")
  mkdir -p "$work/LICENSES"
  cp "$folder/debian/copyright" "$work/LICENSES/$package"
  touch "$work/sources/$package-$version.built"
  versions+=("$package $version")
}
configure_make() {
  autoreconf -fi
  ./configure --prefix="$prefix" --libdir="$prefix/lib" --disable-shared --enable-static "$@" && make -j"$jobs" && make install
}
build_zlib() { ./configure --prefix="$prefix" --static && make -j"$jobs" libz.a && make install; }
build_openssl() {
  # What it states of its build, and where it searches for modules, is no folder of this machine.
  export PATH=$work:$PATH CC=cc CPPFLAGS='' LDFLAGS=''
  ./Configure linux-x86_64 no-shared no-tests no-engine no-dso no-legacy no-comp no-module --prefix="$prefix" --libdir=lib \
    --openssldir=/etc/ssl && make -j"$jobs" build_libs ENGINESDIR=/usr/lib/engines-3 MODULESDIR=/usr/lib/ossl-modules && make install_dev &&
    sed -i 's/-ldl//' "$prefix/lib/pkgconfig/libcrypto.pc" # it is linked as a shared library, below
}
build_curl() {
  autoreconf -fi && ./configure --prefix="$prefix" --disable-shared --enable-static --with-openssl="$prefix" --with-ca-fallback=no \
    --without-ca-bundle --without-ca-path --disable-{ldap,ldaps,ftp,file,dict,telnet,tftp,pop3,imap,smb,smtp,gopher,mqtt,rtsp,ntlm,manual} \
    --without-{libpsl,brotli,zstd,zlib,nghttp2,libidn2,librtmp,libssh2} && make -j"$jobs" -C lib install && make -C include install &&
    make install-pkgconfigDATA &&
    mv "$prefix"/lib/libcurl-*.a "$prefix/lib/libcurl.a" && # Debian's last patch names the library after another TLS library
    sed -i 's/-ldl\|-lpthread//g' "$prefix/lib/pkgconfig/libcurl.pc" # they are linked as shared libraries, below
}
build_archive() {
  configure_make --without-{zlib,zstd,xml2,expat,openssl,nettle,mbedtls,bz2lib,lzma,lz4,lzo2,iconv,libb2,cng} --disable-{acl,xattr,bsdtar,bsdcpio,bsdcat}
}
build_elf() {
  ./configure --prefix="$prefix" --disable-{debuginfod,libdebuginfod,nls} --without-{bzlib,lzma,zstd} &&
    make -j"$jobs" -C lib && make -C config && make -j"$jobs" -C libelf libelf.a &&
    install -D -t "$prefix/lib" libelf/libelf.a && install -D -m 644 -t "$prefix/include" libelf/{libelf,gelf,nlist}.h version.h &&
    install -D -t "$prefix/lib/pkgconfig" config/libelf.pc
}
build_msgpack() {
  cmake -G Ninja -B o -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DBUILD_SHARED_LIBS=OFF \
    -DMSGPACK_ENABLE_SHARED=OFF -DMSGPACK_BUILD_{TESTS,EXAMPLES}=OFF && ninja -C o install
}

compgen -G "$work/apt/lists/*Sources" >/dev/null || logged apt_own apt-get update -qq
versions=()
library zlib build_zlib
library openssl build_openssl
library jansson configure_make
library elfutils build_elf
library msgpack-c build_msgpack
library libseccomp configure_make
library libarchive build_archive
library curl build_curl
if [ -n "$static" ]; then
  versions+=("glibc $(dpkg-query -W -f '${Version}' libc6-dev)")
  cp /usr/share/doc/libc6/copyright "$work/LICENSES/glibc"
fi
cp "$source/LICENSE" "$work/LICENSES/wavetune"
printf '%s\n' "${versions[@]}" >"$work/LICENSES/VERSIONS"

unset CFLAGS CPPFLAGS LDFLAGS
# -static-pie is behind the -pie of CMakeLists.txt, which would win otherwise.
logged cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWAVETUNE_CLIENT_ONLY=ON -DCMAKE_INSTALL_PREFIX=/usr \
  -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_STANDARD_LIBRARIES="-ldl${static:+ -static-pie}" \
  -DWAVETUNE_VERSION="${WAVETUNE_VERSION:-}" -DWAVETUNE_PROJECT_URL="${WAVETUNE_PROJECT_URL:-}"
programs=(wavetune)
[ -n "$static" ] || programs+=(wavetune-agent)
logged cmake --build "$work/build" --target "${programs[@]}"
for program in "${programs[@]}"; do
  install -m 755 -s "$work/build/$program" "$work/$program"
  ls -l "$work/$program"
  [ -z "$static" ] || continue
  readelf -d "$work/$program" | sed -n 's/.*NEEDED.*\[\(.*\)\]/needs \1/p'
  objdump -T "$work/$program" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1
done
