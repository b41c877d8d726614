#!/usr/bin/env bash
# The benchmarks of the coordinator on a machine that has Python and a C compiler, and no packages of ours: a quiet one.
#
#   bench/bare_machine.sh pack        where we build: makes build/bench-bundle.tar.gz of $WAVETUNE_BUILD (default build/release),
#                                     PostgreSQL's server, nginx and the libraries that another Linux may lack
#   bench/bare_machine.sh [STEP…]     there: unpacks it and runs quiet stale forgotten rows floods storm pages readers owners (default: all,
#                                     in this order), each by its program in bench/; what they print also lies in $OUT (default
#                                     build/bench-results), and the line `ratios` of each ends the output
#
# Steps that are joined by "+" run at once, each on its share of the cores: forgotten+rows. $FORGOTTEN, $ROWS, … are the
# arguments of a step. Beginning again goes on with what was unpacked. As root, PostgreSQL runs as the user nobody.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=build/bench-bundle.tar.gz

# What the programs need besides libc and its kin, which must be the machine's own.
copy_libraries() {
  find "$1" -type f \( -perm -u+x -o -name '*.so*' \) -print0 | xargs -0 ldd 2>/dev/null | awk '/=> \// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so' |
    while read -r library; do cp -L "$library" "$1/lib/"; done
}

pack() {
  local build=${WAVETUNE_BUILD:-build/release} folder postgres tree program module
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  postgres=$(ls -d /usr/lib/postgresql/*/ | sort -V | tail -1)
  tree=$folder/usr/lib/postgresql/$(basename "$postgres")
  mkdir -p "$folder"/{lib,programs/bench} "$tree"/{bin,lib} "$folder/usr/share/postgresql"
  for program in wavetune wavetune-agent wavetune-server bench/lease_load bench/park_load bench/start_load; do
    strip -o "$folder/programs/$program" "$build/$program"
  done
  for program in postgres initdb psql; do strip -o "$tree/bin/$program" "$postgres/bin/$program"; done
  for module in plpgsql dict_snowball pg_stat_statements; do strip -o "$tree/lib/$module.so" "$postgres/lib/$module.so"; done
  cp -r "/usr/share/postgresql/$(basename "$postgres")" "$folder/usr/share/postgresql/"
  strip -o "$folder/nginx" "$(command -v nginx || echo /usr/sbin/nginx)"
  cp -r --parents "$build"/statements "$folder/"
  mv "$folder/$build/statements" "$folder/programs/"
  copy_libraries "$folder"
  tar -czf "$bundle" -C "$folder" .
  du -h "$bundle"
}

# Each program as a script that finds the libraries, which are not for this machine's own programs.
wrap() {
  mkdir -p "$(dirname "$2")"
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$unpacked/lib" "$1" >"$2"
  chmod 755 "$2"
}

unpack() {
  unpacked=/tmp/wavetune-bare
  run=$unpacked/run
  if [ ! -e "$run" ]; then
    mkdir -p "$unpacked"
    tar -xzf "$bundle" --no-same-owner -C "$unpacked"
    for program in wavetune wavetune-agent wavetune-server bench/lease_load bench/park_load bench/start_load; do
      wrap "$unpacked/programs/$program" "$run/$program"
    done
    for program in "$unpacked"/usr/lib/postgresql/*/bin/*; do wrap "$program" "$run/postgresql/bin/$(basename "$program")"; done
    wrap "$unpacked/nginx" "$run/path/nginx"
    ln -s "$unpacked/programs/statements" "$run/statements"
    chmod -R a+rX "$unpacked"
  fi
  export WAVETUNE_BUILD=$run WAVETUNE_POSTGRES_BIN=$run/postgresql/bin WAVETUNE_MIGRATIONS=$PWD/migrations PATH=$run/path:$PATH
}

# step NAME CORES: its program, on CORES alone.
step() {
  local name=$1 cores=$2 began=$SECONDS status=0
  local -a command
  # shellcheck disable=SC2206
  case $name in
    quiet) command=(lease_latency.py ${QUIET:-3 10 100000}) ;;
    stale) command=(stale_statistics.py ${STALE:-}) ;;
    forgotten) command=(forgotten_transaction.py ${FORGOTTEN:-600}) ;;
    rows) command=(many_rows.py ${ROWS:-}) ;;
    floods) command=(floods.py ${FLOODS:-}) ;;
    storm) command=(container_start.py ${STORM:---starts 5}) ;;
    pages) command=(fleet_pages.py ${PAGES:-}) ;;
    owners) command=(fair_share.py ${OWNERS:-}) ;;
    readers) command=(page_cost.py --leases ${READERS:-}) ;;
    *) echo "no step \"$name\"; there are quiet, stale, forgotten, rows, floods, storm, pages, readers and owners" >&2; return 2 ;;
  esac
  taskset -c "$cores" python3 "bench/${command[0]}" "${command[@]:1}" >"$OUT/$name.txt" 2>&1 || status=$?
  echo "== $name (cores $cores, $((SECONDS - began)) s, status $status)"
  cat "$OUT/$name.txt"
  return $status
}

if [ "${1:-}" = pack ]; then
  pack
  exit
fi
OUT=${OUT:-build/bench-results}
mkdir -p "$OUT"
unpack
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(quiet stale forgotten rows floods storm pages readers owners)
echo "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) cores, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%FT%TZ)"
failed=0
for joined in "${steps[@]}"; do
  IFS=+ read -ra names <<<"$joined"
  each=$(($(nproc) / ${#names[@]})) first=0 pids=()
  for name in "${names[@]}"; do
    step "$name" "$first-$((first + each - 1))" &
    pids+=($!)
    first=$((first + each))
  done
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
done
grep -H '^ratio\|goal' "$OUT"/*.txt | sed "s|^$OUT/||" || true
exit $failed
