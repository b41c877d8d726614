#!/usr/bin/env bash
# The benchmarks of tuning on a machine with NVIDIA GPUs, torch and Triton, and no network.
#
#   bench/on_gpu.sh [STEP…]     steps: versus campaigns same gpus; default: these, in this order; and start, sandbox, unmodified,
#                              captured, one, census, refused, tables
#
# Programs are those of $WAVETUNE_BUILD, else of build/gpu-bundle.tar.gz (tests/gpu/bundle.sh). With WHEEL=FILE (of
# deploy/release.sh) client and agent are those of that wheel, installed in a new virtual environment that sees this machine's
# packages and is first in $PATH; steps with a server take that of the bundle. Uses all GPUs there are, or the first $GPUS. What is
# printed and every JSON document also lie in $OUT (default build/gpu-results). $VERSUS (default --cold), $CAMPAIGNS, $SAME,
# $GPUS_OPTIONS and $SANDBOX are options of the steps.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${OUT:-build/gpu-results}
mkdir -p "$OUT"
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(versus campaigns same gpus)
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
[ "$gpus" -ge 1 ] || { echo "there is no NVIDIA GPU here"; exit 1; }

scratch=$(mktemp -d /tmp/wavetune-bench-XXXXXX)
chmod 755 "$scratch"
trap 'rm -rf "$scratch"' EXIT
postgres=()
programs=$scratch/programs
mkdir "$programs"
if [ -n "${WHEEL:-}" ]; then
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') # where torch is; python3 may be of a venv itself
  python3 -m venv --system-site-packages "$scratch/venv" &&
    echo "import site; site.addsitedir('$packages')" >"$(echo "$scratch"/venv/lib/python3*/site-packages)/packages.pth" &&
    "$scratch/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$WHEEL" || exit 1
  unset WAVETUNE_BUILD PYTHONPATH
  export PATH=$scratch/venv/bin:$PATH
  ln -s "$scratch"/venv/lib/python3*/site-packages/wavetune/bin/* "$programs/"
fi
if [ -z "${WAVETUNE_BUILD:-}" ] && { [ -z "${WHEEL:-}" ] || [ -e build/gpu-bundle.tar.gz ]; }; then
  tar -xzf build/gpu-bundle.tar.gz --no-same-owner -C "$scratch" || exit 1
  chmod -R a+rX "$scratch"
  # The libraries are for our programs, not for this machine's torch.
  libraries=$scratch/lib:/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  for program in wavetune wavetune-agent wavetune-server sandbox_verdict; do
    [ ! -e "$programs/$program" ] || continue
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$libraries" "$scratch/bin/$program" >"$programs/$program"
    chmod 755 "$programs/$program"
  done
  postgres=(--postgres-bin "$(ls -d "$scratch"/postgresql/usr/lib/postgresql/*/bin)")
fi
export WAVETUNE_BUILD=${WAVETUNE_BUILD:-$programs}
devices=()
for ((i = 0; i < gpus; i++)); do devices+=(--device "cuda$i"); done
echo "$gpus x $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1), $(nproc) cores, Triton $(python3 -c 'import triton; print(triton.__version__)'), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%FT%TZ)"

status=0
step() {
  local name=$1 begin=$SECONDS
  shift
  echo "== $name"
  # shellcheck disable=SC2086
  "$@" 2>"$OUT/$name.err" | tee "$OUT/$name.txt"
  local code=${PIPESTATUS[0]}
  [ "$code" -eq 0 ] || { status=1; tail -5 "$OUT/$name.err"; }
  echo "   ($name: $((SECONDS - begin)) s, status $code)"
}
for name in "${steps[@]}"; do
  case $name in
    # shellcheck disable=SC2086
    versus) step versus python3 bench/versus_autotuner.py --gpus "$gpus" --json "$OUT/versus.json" ${VERSUS:---cold} ;;
    # shellcheck disable=SC2086
    campaigns) step campaigns python3 bench/campaigns.py --gpus "$gpus" --json "$OUT/campaigns.json" ${CAMPAIGNS:-} ;;
    # shellcheck disable=SC2086
    same) step same python3 bench/same_config.py "${devices[@]}" --json "$OUT/same.json" ${SAME:-} ;;
    # shellcheck disable=SC2086
    gpus) step gpus python3 bench/gpus.py "${postgres[@]}" --json "$OUT/gpus.json" ${GPUS_OPTIONS:-} ;;
    # The wheels of flash-linear-attention lie in $WHEELS.
    # shellcheck disable=SC2086
    unmodified) step unmodified python3 bench/unmodified_gpu.py "${postgres[@]}" ${WHEELS:+--wheels "$WHEELS"} --json "$OUT/unmodified.json" ${UNMODIFIED:-} ;;
    # shellcheck disable=SC2086
    captured) step captured python3 bench/captured_gpu.py "${postgres[@]}" ${WHEELS:+--wheels "$WHEELS"} --json "$OUT/captured${CAPTURED_NAME:-}.json" ${CAPTURED:-} ;;
    # shellcheck disable=SC2086
    one) step one python3 bench/one_command.py ${WHEELS:+--wheels "$WHEELS"} --json "$OUT/one.json" ${ONE:-} ;;
    # shellcheck disable=SC2086
    census) step census python3 bench/census_gpu.py run ${WHEELS:+--wheels "$WHEELS"} --output "$OUT" ${CENSUS:-} ;;
    # shellcheck disable=SC2086
    refused) step refused python3 bench/refused_gpu.py ${WHEELS:+--wheels "$WHEELS"} --json "$OUT/refused.json" ${REFUSED:-} ;;
    # vLLM's texts lie in $SITE (a folder, or a .tar.gz of one), its tuner in $TUNER.
    # shellcheck disable=SC2086
    tables)
      site=${SITE:?names the folder with the texts of vllm}
      [ -d "$site" ] || { mkdir "$scratch/site" && tar -xzf "$site" --no-same-owner -C "$scratch/site" && site=$scratch/site; }
      step tables python3 bench/tables_gpu.py "${postgres[@]}" --site "$site" ${TUNER:+--tuner "$TUNER"} --tables "$OUT/tables" --json "$OUT/tables.json" ${TABLES:-}
      ;;
    start) step start python3 bench/gpu_start.py --gpus "$gpus" ;;
    # shellcheck disable=SC2086
    sandbox) step sandbox python3 bench/sandbox_cost.py --device cuda0 --json "$OUT/sandbox.json" ${SANDBOX:-} ;;
    *) echo "no step \"$name\"; there are versus, campaigns, same, gpus, start, sandbox, unmodified, captured, one, census, refused and tables"; status=2 ;;
  esac
done
exit $status
