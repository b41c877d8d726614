# Debian packages by purpose, and `packages_install NAME…`, which installs those that are missing. Sourced, not run.
# shellcheck shell=bash

PACKAGES_BUILD="build-essential cmake ninja-build pkg-config libmicrohttpd-dev libgnutls28-dev libpq-dev libjansson-dev libssl-dev
  libcurl4-openssl-dev libzstd-dev libelf-dev libmsgpack-dev libseccomp-dev libarchive-dev libcriterion-dev"
PACKAGES_RUN="postgresql ca-certificates"
# Kernels in hip for AMD GPUs: compiling and disassembling them.
PACKAGES_GPU="clang-19 lld-19 llvm-19"
# The documentation as a site.
PACKAGES_DOCS="python3-sphinx python3-myst-parser furo"
PACKAGES_TEST="$PACKAGES_DOCS $PACKAGES_GPU chromium clang-format-19 clang-tidy-19 curl faketime git haproxy iproute2 nftables
  nginx-light openssl procps prometheus prometheus-alertmanager python3 python3-cryptography python3-jwt python3-pytest
  python3-venv python3-yaml skopeo systemd util-linux"
PACKAGES_FUZZ="clang-19 libclang-rt-19-dev"
PACKAGES_BENCH="nginx-light wrk postgresql-contrib redis-server lld-19"

packages_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "missing packages (run as root, or install them): ${missing[*]}" >&2; return 1; }
    as_root=(sudo)
  fi
  echo "installing: ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null || return 1
}
