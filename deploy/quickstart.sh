#!/usr/bin/env bash
# One command from a clean clone to a tuned cache: installs missing packages, builds, starts a private server and an agent,
# tunes a kernel over its whole space on this machine's CPU, publishes the winner to channel `stable`, and fetches it as a
# container would. It may be repeated, and ends every process that it started.
#
#   deploy/quickstart.sh [KERNEL [KEY]]       default: kernels/softmax:online rows=512,columns=1024
#
#   QUICKSTART_FOLDER   where database, agent state and cache are kept (default: build/quickstart)
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/packages.sh

kernel=${1:-kernels/softmax:online}
key=${2:-rows=512,columns=1024}
folder=$(realpath -m "${QUICKSTART_FOLDER:-build/quickstart}")
programs=build/release

say() { printf '\n== %s\n' "$*"; }

say "packages"
# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD $PACKAGES_RUN
echo "everything needed is installed"

say "build"
mkdir -p build
cmake --preset release >build/quickstart-build.log 2>&1 || { cat build/quickstart-build.log; exit 1; }
cmake --build --preset release --target wavetune wavetune-agent wavetune-server >>build/quickstart-build.log 2>&1 || { tail -50 build/quickstart-build.log; exit 1; }
"$programs/wavetune" --version

# Ends every process that was started here, in every case: the agent first, so that it releases its lease.
agent='' server=''
finish() {
  status=$?
  for pid in $agent $server; do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  [ $status -eq 0 ] || echo "quickstart failed; logs are in $folder" >&2
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM

mkdir -p "$folder"
# PostgreSQL refuses to run as root; as root its folder belongs to the user postgres and is where that user may go.
database="$folder/database"
[ "$(id -u)" -ne 0 ] || database=/var/lib/wavetune-quickstart

say "coordinator (private PostgreSQL in $database)"
"$programs/wavetune-server" dev --folder "$database" --port 0 >"$folder/server.out" 2>"$folder/server.log" &
server=$!
for _ in $(seq 3000); do
  grep -q '^token ' "$folder/server.out" && break
  kill -0 "$server" 2>/dev/null || { cat "$folder/server.log"; exit 1; }
  sleep 0.1
done
WAVETUNE_URL=$(sed -n 's/^url //p' "$folder/server.out")
WAVETUNE_TOKEN=$(sed -n 's/^token //p' "$folder/server.out")
export WAVETUNE_URL WAVETUNE_TOKEN
echo "serving at $WAVETUNE_URL"

say "agent on this machine's CPU"
"$programs/wavetune-agent" run --state "$folder/agent" --name quickstart >"$folder/agent.out" 2>"$folder/agent.log" &
agent=$!
environment=$("$programs/wavetune-agent" env)
echo "$environment"

# An environment is known to the server once a node with it has enrolled.
is_live=
for _ in $(seq 3000); do
  "$programs/wavetune" agents --json | grep -q '"state": "live"' && is_live=yes && break
  kill -0 "$agent" 2>/dev/null || { cat "$folder/agent.log"; exit 1; }
  sleep 0.1
done
[ -n "$is_live" ] || { echo "the agent did not enrol; see $folder/agent.log"; exit 1; }

say "tune $kernel for $key"
"$programs/wavetune" submit "$kernel" --key "$key" --environment "$environment" --wait

say "publish to channel stable"
"$programs/wavetune" publish --environment "$environment" --channel stable

say "fetch, as a container would when it starts"
"$programs/wavetune" fetch --channel stable --environment "$environment" --to "$folder/cache"
"$programs/wavetune" fetch --channel stable --environment "$environment" --to "$folder/cache"
ls -l "$folder/cache/current/"
cat "$folder/cache/current/json/cache.json"
echo
