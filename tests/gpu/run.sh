#!/usr/bin/env bash
# Tests on a machine with GPUs: one command, no network, under 8 minutes on one H200.
#
#   tests/gpu/run.sh [PART…]              parts: device tune triton isolation leftovers yield deployment multi overhead;
#                                         default: all, in this order; and captured, which is the end of triton
#   tests/gpu/run.sh --emulated [PART…]   on an emulated AMD GPU (tests/README.md): device and isolation, which ask whether
#                                         results are right; no other part, and no time in what is written means anything
#
# On NVIDIA GPUs HIP's back end runs too, over the shim of tests/hip_shim. Where there is no CUDA device, the devices of a HIP
# runtime are tested alone; nobody has done that yet. Programs are those of $WAVETUNE_BUILD or of the bundle
# $WAVETUNE_BUNDLE; by default of build/dev or build/release, else of build/gpu-bundle.tar.gz, which tests/gpu/bundle.sh
# makes on the machine that builds. NVRTC and the C compiler are this machine's. What is printed and every JSON document also lie in
# $OUT (default build/gpu-results). Ends with `N passed, N failed`; the exit status says the same.
set -uo pipefail
cd "$(dirname "$0")/../.."
OUT=${OUT:-build/gpu-results}
mkdir -p "$OUT"
OUT=$(realpath "$OUT")
EMULATED_NOTE="EMULATED: the GPU is a program. Nothing here is a claim of time; what is told is whether results were right."
emulated=
if [ "${1:-}" = --emulated ]; then
  emulated=1
  shift
  for part in "$@"; do
    case $part in
    device | isolation) ;;
    *)
      echo "$part is no part for an emulated GPU: it claims time, or needs GPUs that take some; there are device and isolation"
      echo "0 passed, 1 failed"
      exit 1
      ;;
    esac
  done
  [ $# -gt 0 ] || set -- device isolation
  set -- --emulated "$@"
fi
if [ -z "${WAVETUNE_GPU_LOGGED:-}" ]; then
  WAVETUNE_GPU_LOGGED=1 OUT=$OUT tests/gpu/run.sh "$@" 2>&1 | tee "$OUT/log.txt"
  exit "${PIPESTATUS[0]}"
fi
[ -z "$emulated" ] || shift
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(device tune triton isolation leftovers yield deployment multi overhead)

scratch=$(mktemp -d /tmp/wavetune-gpu-XXXXXX)
chmod 755 "$scratch"
declare -A started=() # what runs in the background
end() {
  kill "$1" 2>/dev/null
  wait "$1" 2>/dev/null
  unset "started[$1]"
}
# All at once, and then waited for: PostgreSQL ends only when the server has let go of it.
finish() {
  [ ${#started[@]} -eq 0 ] || kill "${!started[@]}" 2>/dev/null
  for pid in "${!started[@]}"; do wait "$pid" 2>/dev/null; done
  rm -rf "$scratch"
}
trap finish EXIT

passed=0 failed=0
ok() { passed=$((passed + 1)); echo "ok      $1"; }
not_ok() { failed=$((failed + 1)); echo "NOT OK  $1"; }
skip() { echo "skipped $1"; }

# check NAME COMMAND…: the last line that the command prints says how it went; the rest is in NAME.log.
check() {
  local name=$1
  shift
  if "$@" >"$OUT/$name.log" 2>&1; then
    ok "$name: $(tail -1 "$OUT/$name.log")"
  else
    not_ok "$name: $(tail -3 "$OUT/$name.log" | tr '\n' ' ')"
    return 1
  fi
}

# Programs.
bundle=
build=${WAVETUNE_BUILD:-}
unset WAVETUNE_BUILD WAVETUNE_URL WAVETUNE_TOKEN
for folder in build/dev build/release; do
  [ -n "$build${WAVETUNE_BUNDLE:-}" ] || { [ -x $folder/wavetune-agent ] && build=$folder; }
done
if [ -n "$build" ]; then
  programs=$build tests=$build/tests shims=$build/tests/hip_shim overhead=$build/bench/launch_overhead
  builds=build/gpu-triton/sm_90
else
  archive=${WAVETUNE_BUNDLE:-build/gpu-bundle.tar.gz}
  bundle=$scratch/bundle
  mkdir "$bundle" && tar -xzf "$archive" --no-same-owner -C "$bundle" ||
    { echo "no build folder and no $archive; run tests/gpu/bundle.sh where wavetune is built"; echo "0 passed, 1 failed"; exit 1; }
  chmod -R a+rX "$bundle"
  programs=$bundle/bin tests=$bundle/bin shims=$bundle/lib overhead=$bundle/bin/launch_overhead builds=$bundle/triton
fi
shim=$(realpath "$shims/libamdhip64.so" 2>/dev/null)
libraries=${bundle:+$bundle/lib:}/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
ours() { LD_LIBRARY_PATH=$libraries "$@"; }
compare() { python3 tests/gpu/compare.py "$@"; }

# Devices. With the shim in place there is a HIP device for every CUDA device; without CUDA, HIP's own alone.
ours "$programs/wavetune-agent" probe >"$OUT/probe-first.json" 2>"$OUT/probe-first.log"
backend=cuda
[ -z "$emulated" ] || backend=hip
read -r gpus arch < <(compare facts "$OUT/probe-first.json" $backend)
if [ "${gpus:-0}" -lt 1 ] && [ -z "$emulated" ]; then
  backend=hip
  read -r gpus arch < <(compare facts "$OUT/probe-first.json" hip)
fi
if [ "${gpus:-0}" -lt 1 ]; then
  cat "$OUT/probe-first.log"
  compare absent "$OUT/probe-first.json"
  if [ -n "$emulated" ]; then
    echo "there is no HIP device here; start this under the emulator (tests/README.md)"
  else
    echo "there is no CUDA device here, and no HIP device"
  fi
  echo "0 passed, 1 failed"
  exit 1
fi
if [ $backend = cuda ]; then
  devices=(cuda0 hip0)
  hip_library=$shim
else
  devices=(hip0)
  hip_library=${WAVETUNE_HIP_LIBRARY:-${ROCM_PATH:-/opt/rocm}/lib/libamdhip64.so}
fi
with_hip() { WAVETUNE_HIP_LIBRARY=$hip_library WAVETUNE_ARCH=$arch ours "$@"; }
echo "$gpus GPUs of $arch, programs of ${build:-$archive}, started $(date -u +%FT%TZ)"

# An emulated GPU takes as long as it takes: more patience, less to do.
patience_s=150 device_patience_s=200 config_timeout_s=4 elements=100000
few=() sane=()
if [ -n "$emulated" ]; then
  echo "$EMULATED_NOTE" | tee "$OUT/EMULATED.txt"
  patience_s=3600 device_patience_s=3600 config_timeout_s=120 elements=1000
  few=(--screen-rounds 3 --final-rounds 5)
  sane=("${few[@]}" --config-timeout $config_timeout_s)
  export WAVETUNE_DISPLACEMENT_BYTES=${WAVETUNE_DISPLACEMENT_BYTES:-1048576}
else
  rm -f "$OUT/EMULATED.txt"
fi

# tuned NAME DEVICE KERNEL KEY OPTION…: NAME.json.
tuned() {
  local name=$1 device=$2 kernel=$3 key=$4 begin=$SECONDS
  shift 4
  with_hip timeout $patience_s "$programs/wavetune-agent" tune "$kernel" --key "$key" --device "$device" \
    --state "$scratch/state" --json "$@" >"$OUT/$name.json" || return
  if [ -n "$emulated" ]; then
    compare mark "$OUT/$name.json" "$EMULATED_NOTE"
  else
    echo "$kernel for $key in $((SECONDS - begin)) s"
  fi
}

# Tunes a kernel whose default is not what Triton's interpreter computes; fails unless that is said.
misread() { # DEVICE KERNEL KEY …
  local said
  said=$(tuned misread "$@" 2>&1) && echo "the default was not found to be wrong" && return 1
  grep -ho "[a-z]*\[[0-9]*\] is [^\"]*Triton's interpreter has [^)]*)" - "$OUT/misread.json" <<<"$said" | head -1 | grep .
}

part_device() {
  with_hip "$programs/wavetune-agent" probe >"$OUT/probe.json" 2>"$OUT/probe.log"
  check probe compare devices "$OUT/probe.json" "${devices[@]}"
  # A test that finds no GPU skips itself: here that is a failure. Without CUDA, its own tests may skip, and the one of a
  # fault, which on an AMD GPU ends the process without words.
  local not_here='^$'
  [ $backend = cuda ] || not_here='no device cuda0|CUDA driver|for cuda|without words'
  with_hip timeout $device_patience_s "$tests/test_agent_device_gpu" --verbose >"$OUT/device.log" 2>&1
  local status=$? skips
  skips=$(grep '^\[SKIP\]' "$OUT/device.log" | grep -cvE "$not_here")
  local line
  line=$(grep Synthesis "$OUT/device.log" | tail -1)
  if [ $status -eq 0 ] && [ "$skips" -eq 0 ] && [ -n "$line" ]; then
    ok "device: the back ends' tests, ${devices[*]%0}: ${line#*Synthesis: }"
  else
    not_ok "device: ${line:-no summary}, exit status $status, $skips skipped (device.log)"
  fi
}

# same NAME KERNEL KEY OPTION…: tunes through cuda, through hip over the shim, and through cuda once more; where there is no
# CUDA device, through hip.
same() {
  local name=$1 device
  shift
  if [ $backend = hip ]; then
    check "$name-hip0" tuned "$name-hip0" hip0 "$@" && check "$name" compare tuned "$OUT/$name-hip0.json"
    return
  fi
  for device in cuda0 hip0 again; do
    check "$name-$device" tuned "$name-$device" "${device/again/cuda0}" "$@" || return
  done
  check "$name" compare tuned "$OUT/$name-cuda0.json"
  check "$name-cuda-and-hip" compare same "$OUT/$name-cuda0.json" "$OUT/$name-hip0.json" "$OUT/$name-again.json"
}

part_tune() {
  same matmul kernels/matmul:hip M=1024,N=1024,K=1024
  same softmax kernels/softmax:hip_online rows=2048,columns=4096
  for other in "softmax:hip_naive rows=513,columns=777" "softmax:hip_fused rows=513,columns=4096" \
    "layernorm:hip rows=513,columns=777" "vector_add:hip n=1000003" "matmul:hip M=97,N=129,K=65" \
    "matmul:hip_fp16 M=512,N=512,K=512"; do
    read -r kernel key <<<"$other"
    local name=${kernel/:/-}-${key//[=,]/-}
    check "tuned-$name" tuned "$name" ${backend}0 "kernels/$kernel" "$key" --screen-rounds 3 --final-rounds 5 &&
      check "$name" compare tuned "$OUT/$name.json"
  done
}

part_triton() {
  if [ "$arch" != sm_90 ] || [ ! -d "$builds" ]; then
    skip "triton: there are no builds for $arch (tests/gpu/bundle.sh packs for sm_90)"
    return
  fi
  while read -r place key; do
    local name=${place#kernels/}
    name=${name/:/-}
    if [ -f "$builds/$name/build.json" ]; then
      same "$name" "$place" "$key" --build "$builds/$name"
    else
      skip "$name: it was not packed"
    fi
  done < <(grep -v '^#' tests/gpu/triton.txt)
  part_captured
}

# A captured kernel, and the same with a config more that is wrong in one element, without a reference: that one must be found.
part_captured() {
  local dtype=x_dtype=torch.float8_e4m3fn
  if [ -f "$builds/captured/build/build.json" ]; then
    same captured "$builds/captured/kernel" "n=16777216,$dtype" --build "$builds/captured/build"
    check captured-odd tuned captured-odd ${backend}0 "$builds/captured/kernel" "n=100003,$dtype" \
      --build "$builds/captured/build" --screen-rounds 3 --final-rounds 5 &&
      check captured-odd-right compare tuned "$OUT/captured-odd.json"
    check planted tuned planted ${backend}0 "$builds/planted/kernel" "n=16777216,$dtype" --build "$builds/planted/build" &&
      check planted-found compare planted "$OUT/planted.json" 4
    check misread misread ${backend}0 "$builds/misread/kernel" "n=100003,$dtype" --build "$builds/misread/build"
  else
    skip "captured: it was not built"
  fi
}

part_isolation() {
  local folder=tests/data/kernels device right=tuned
  [ -z "$emulated" ] || right=correct
  for device in "${devices[@]}"; do
    check "isolation-$device" tuned "isolation-$device" $device $folder/gpu_misbehaving n=$elements \
      --config-timeout $config_timeout_s "${few[@]}" &&
      check "isolated-$device" compare isolated "$OUT/isolation-$device.json" $folder/gpu_misbehaving/space.json
    # The GPU works as before.
    check "after-isolation-$device" tuned "after-isolation-$device" $device $folder/gpu_quick n=$elements "${sane[@]}" &&
      check "sane-$device" compare $right "$OUT/after-isolation-$device.json"
  done
}

# Whether a process sees what another left in the GPU's memory (docs/security.md says what was found).
part_leftovers() {
  if [ $backend != cuda ]; then
    skip "leftovers: it looks through CUDA's driver, which is not here"
    return
  fi
  check leftovers env "LD_LIBRARY_PATH=$libraries" python3 tests/gpu/leftovers.py
}

# A private PostgreSQL under a user that is not root; prints its connection string's host.
postgres_start() {
  local folder=$scratch/postgres bin user=nobody
  bin=$(ls -d "${bundle:-/none}"/postgresql/usr/lib/postgresql/*/bin /usr/lib/postgresql/*/bin 2>/dev/null | head -1)
  [ -n "$bin" ] || return 1
  id postgres >/dev/null 2>&1 && user=postgres
  mkdir -m 700 "$folder"
  local as=()
  if [ "$(id -u)" -eq 0 ]; then
    chown "$user" "$folder"
    as=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
  fi
  as+=(env "HOME=$folder" TZ=GMT "LD_LIBRARY_PATH=${bundle:+$bundle/lib}")
  (cd / && "${as[@]}" "$bin/initdb" -D "$folder/data" --no-sync --no-instructions -A trust -U postgres -E UTF8 \
    --locale=C) >"$OUT/postgres.log" 2>&1 || return 1
  chmod 711 "$folder" # the server, another user, reaches the socket in it
  (cd / && exec "${as[@]}" "$bin/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c timezone=GMT \
    -c log_timezone=GMT) >>"$OUT/postgres.log" 2>&1 &
  started[$!]=1
  database="host=$folder user=postgres dbname=postgres"
  for _ in $(seq 100); do
    [ -S "$folder/.s.PGSQL.5432" ] && ours "$programs/wavetune-server" migrate --database "$database" \
      >>"$OUT/server.log" 2>&1 && return 0
    sleep 0.1
  done
  return 1
}

server_start() {
  export WAVETUNE_MIGRATIONS=$PWD/migrations
  postgres_start || { tail -5 "$OUT/postgres.log"; return 1; }
  WAVETUNE_TOKEN=$(ours "$programs/wavetune-server" token make gpu-tests --database "$database" --role admin |
    awk '{ print $NF }')
  export WAVETUNE_TOKEN
  (export LD_LIBRARY_PATH=$libraries # exec: what is ended is the server and no shell around it
    exec "$programs/wavetune-server" serve --database "$database" --port 0) >"$OUT/server.out" 2>>"$OUT/server.log" &
  started[$!]=1
  for _ in $(seq 100); do
    WAVETUNE_URL=$(grep -oE 'http://[0-9.:]+' "$OUT/server.out" | tail -1)
    [ -n "$WAVETUNE_URL" ] && export WAVETUNE_URL && return 0
    sleep 0.1
  done
  return 1
}

# campaign RUN KEY OPTION…: an agent and a job of some hundred configs; how many seconds the job took is in $seconds.
campaign() {
  local run=$1 key=$2
  shift 2
  (export WAVETUNE_LOG=info LD_LIBRARY_PATH=$libraries
    exec "$programs/wavetune-agent" run --state "$scratch/agent" --name gpu-tests "$@") >"$OUT/agent-$run.log" 2>&1 &
  local agent=$!
  started[$agent]=1
  for _ in $(seq 300); do
    grep -q 'agent: enrolled' "$OUT/agent-$run.log" && break
    sleep 0.1
  done
  grep -q 'agent: enrolled' "$OUT/agent-$run.log" || return 1
  local begin
  begin=$(date +%s%N)
  ours timeout 150 "$programs/wavetune" submit tests/data/kernels/gpu_quick --key "$key" --run "$run" --wait --json \
    >"$OUT/campaign-$run.json" 2>>"$OUT/server.log" || return 1
  seconds=$(awk "BEGIN { print ($(date +%s%N) - $begin) / 1e9 }")
  end "$agent"
}

# A process of another program opens the GPU in the middle of a lease.
part_yield() {
  if [ $backend != cuda ]; then
    skip "yield: the other process opens a CUDA device, and none is here"
    return
  fi
  [ -n "${WAVETUNE_URL:-}" ] || server_start || { not_ok "yield: the server did not start (postgres.log, server.log)"; return; }
  ours python3 tests/gpu/yielding.py "$(realpath "$programs")" "$scratch" >"$OUT/yield.log" 2>&1
  local status=$? line
  line=$(tail -1 "$OUT/yield.log")
  case $status in
  0) ok "yield: $line" ;;
  77) skip "yield: $line" ;;
  *) not_ok "yield: $line (yield.log)" ;;
  esac
}

part_multi() {
  if [ "$gpus" -lt 2 ]; then
    skip "multi: there is one GPU here; it wants two"
    return
  fi
  [ -n "${WAVETUNE_URL:-}" ] || server_start || { not_ok "multi: the server did not start (postgres.log, server.log)"; return; }
  local one all i use=()
  for ((i = 0; i < gpus; i++)); do use+=(--device "$backend$i"); done
  # The first campaign only compiles for the others.
  local key=n=16777216
  campaign compile n=4096 --device ${backend}0 && campaign one $key --device ${backend}0 && one=$seconds &&
    campaign all $key "${use[@]}" && all=$seconds ||
    { not_ok "multi: a campaign failed (agent-*.log, campaign-*.json)"; return; }
  local job
  job=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["job"])' "$OUT/campaign-all.json")
  check multi compare spread "$WAVETUNE_URL" "$job" "$gpus"
  echo "        $gpus GPUs $all s, one GPU $one s: ratio $(awk "BEGIN { print $one / $all }") x"
}

# Caches for unmodified tools, with the torch and Triton of this machine.
part_deployment() {
  python3 -c 'import torch, triton' 2>/dev/null || { skip "deployment: python3 has no torch or no triton here"; return; }
  [ -n "${WAVETUNE_URL:-}" ] || server_start ||
    { not_ok "deployment: the server did not start (postgres.log, server.log)"; return; }
  local tool
  for tool in triton tunableop; do
    check "deployment-$tool" env "WAVETUNE_LIBRARIES=$libraries" python3 tests/gpu/deployment.py $tool "$(realpath "$programs")" "$scratch" ${backend}0
  done
}

part_overhead() {
  local device
  for device in "${devices[@]}"; do
    check "overhead-vector_add-$device" with_hip timeout 60 "$overhead" $device kernels/vector_add:hip n=16777216
    check "overhead-softmax-$device" with_hip timeout 60 "$overhead" $device kernels/softmax:hip_online rows=2048,columns=4096
    check "overhead-noop-$device" with_hip timeout 60 "$overhead" $device kernels/noop:hip n=1
  done
}

for part in "${parts[@]}"; do
  case $part in
  device | tune | triton | captured | isolation | leftovers | yield | deployment | multi | overhead)
    begin=$SECONDS
    echo "== $part"
    "part_$part"
    [ -n "$emulated" ] || echo "   ($((SECONDS - begin)) s)"
    ;;
  *) not_ok "there is no part $part: device tune triton captured isolation leftovers yield deployment multi overhead" ;;
  esac
done
[ -z "$emulated" ] || echo "$EMULATED_NOTE"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
