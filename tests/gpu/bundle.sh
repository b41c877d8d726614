#!/usr/bin/env bash
# Makes build/gpu-bundle.tar.gz: what tests/gpu/run.sh needs on a GPU machine with no network and no packages of ours.
#
#   tests/gpu/bundle.sh [BUILD]     default: $WAVETUNE_BUILD, else build/release, else build/dev
#
# Programs and tests of the build, stripped, and the HIP shim; the shared libraries that another Linux may lack; Triton
# kernels packed for $ARCH (sm_90), where build/python is; PostgreSQL's server from Debian's package.
set -euo pipefail
cd "$(dirname "$0")/../.."
ARCH=${ARCH:-sm_90}
build=${1:-${WAVETUNE_BUILD:-}}
for folder in build/release build/dev; do
  [ -n "$build" ] || { [ -x $folder/wavetune-agent ] && build=$folder; } || true
done
[ -n "$build" ] && [ -x "$build/wavetune-agent" ] || { echo "no programs: build a preset first" >&2; exit 1; }

bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
mkdir -p "$bundle"/{bin,lib,triton,postgresql/bin}

for program in wavetune wavetune-agent wavetune-server bench/launch_overhead bench/sandbox_verdict tests/test_agent_device_gpu; do
  [ -x "$build/$program" ] || { echo "$build/$program is missing: build everything first" >&2; exit 1; }
  strip -o "$bundle/bin/$(basename "$program")" "$build/$program"
done
cp -P "$build"/tests/hip_shim/libamdhip64.so* "$bundle/lib/"

# PostgreSQL finds its other folders from where its program lies: the tree keeps its shape.
postgres=$(ls -d /usr/lib/postgresql/*/ 2>/dev/null | sort -V | tail -1)
if [ -n "$postgres" ]; then
  version=$(basename "$postgres") tree=$bundle/postgresql/usr
  mkdir -p "$tree/lib/postgresql/$version"/{bin,lib} "$tree/share/postgresql"
  for program in postgres initdb psql; do
    strip -o "$tree/lib/postgresql/$version/bin/$program" "$postgres/bin/$program"
  done
  for module in plpgsql dict_snowball; do
    strip -o "$tree/lib/postgresql/$version/lib/$module.so" "$postgres/lib/$module.so"
  done
  cp -r "/usr/share/postgresql/$version" "$tree/share/postgresql/"
  rm -rf "$tree/share/postgresql/$version/man"
else
  echo "PostgreSQL is not installed here: the bundle tests one GPU at a time" >&2
fi

# Not libc and its kin: those must be the machine's own.
find "$bundle" -type f -perm -u+x -o -type f -name '*.so*' | xargs ldd 2>/dev/null | awk '/=> \// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$bundle/lib/"; done

python=build/python/bin/python
if [ -x $python ]; then
  grep -v '^#' tests/gpu/triton.txt | while read -r place key; do
    name=$(basename "${place/:/-}")
    kept=build/gpu-triton/$ARCH/$name
    hash=$("$build/wavetune" kernel hash "$place")
    if ! grep -qs "${hash##* }" "$kept/build.json" || [ "$(cat "$kept.key" 2>/dev/null)" != "$key" ]; then
      mkdir -p "$(dirname "$kept")"
      echo "packing $place for $key" >&2
      PYTHONPATH=python $python -m wavetune pack "$place" --key "$key" --arch "$ARCH" --output "$kept" >&2
      echo "$key" >"$kept.key"
    fi
    # The texts beside the code are for reviews: not here.
    mkdir -p "$bundle/triton/$name/objects"
    cp "$kept/build.json" "$bundle/triton/$name/"
    grep -oE '"digest":"sha256:[0-9a-f]{64}' "$kept/build.json" | cut -d: -f3 | sort -u |
      while read -r object; do cp "$kept/objects/$object" "$bundle/triton/$name/objects/"; done
  done
  # Captured kernels: their builds are written by hand, and with them the bytes that a case passes.
  kept=build/gpu-triton/$ARCH
  PYTHONPATH=python $python tests/gpu/captured.py "$build/wavetune" "$ARCH" "$kept"
  cp -r "$kept"/{captured,planted,misread} "$bundle/triton/"
else
  echo "build/python is not there (tests/python-env.sh makes it): the bundle has no Triton builds" >&2
fi

tar -czf build/gpu-bundle.tar.gz -C "$bundle" .
du -h build/gpu-bundle.tar.gz
