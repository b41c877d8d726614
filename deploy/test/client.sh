#!/usr/bin/env bash
# Builds the one client (deploy/client/build.sh) and runs it in Debian 11, 12 and 13 without a package of its libraries against a
# real server over TLS, which it trusts by the file of authorities of Debian or of RHEL; and the static one in a folder that has
# nothing but it, that file and a list of hosts.
#
#   deploy/test/client.sh
#
# Needs: root; Debian 12; Debian's mirror; 1 GB of disk. Installs missing packages by name.
# Takes: fifteen minutes, the first time six more for libraries.
#
# RHEL itself is not run: its path is, in Debian 11. $WORK (default build/client-test) keeps the three trees for the next run.
# Everything listens on 127.0.0.1. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
needs root debian disk:1
work=${WORK:-$PWD/build/client-test}
mkdir -p "$work"
work=$(realpath "$work")
packages_install mmdebstrap openssl binutils
programs_build "$work/build.log"

echo "== build"
check "the client is built" deploy/client/build.sh
client=build/client/wavetune
echo "   $(stat -c %s $client) bytes"
needs=$(readelf -d $client | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort | paste -sd' ')
check "it needs only libraries of libc6 ($needs)" sh -c "! echo '$needs' | tr ' ' '\n' | grep -vE '^(libc|libm|libpthread|libdl|ld-linux-x86-64)\.so'"
glibc=$(objdump -T $client | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
check "it needs glibc 2.31 at most ($glibc)" test "$(printf '%s\n' GLIBC_2.31 "$glibc" | sort -V | tail -1)" = GLIBC_2.31
check "the static client is built" deploy/client/build.sh --static
static=build/client-static/wavetune
echo "   $(stat -c %s $static) bytes"
check "it needs no library" sh -c "! readelf -d $static | grep NEEDED"

echo "== a server with TLS"
folder=$(mktemp -d /tmp/wavetune-client-XXXXXX)
dev='' server='' agent=''
finish() {
  for pid in $agent $server $dev; do
    kill -TERM "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap finish EXIT
database=$folder/database
build/release/wavetune-server dev --folder "$database" --port 0 >"$folder/dev.out" 2>"$folder/dev.log" &
dev=$!
chmod 755 "$folder"
wait_until 60 grep -q '^token ' "$folder/dev.out"
token=$(sed -n 's/^token //p' "$folder/dev.out")
dev_url=$(sed -n 's/^url //p' "$folder/dev.out")
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca -keyout "$folder/ca.key" -out "$folder/ca.crt" 2>/dev/null
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout "$folder/server.key" -out "$folder/server.csr" 2>/dev/null
printf 'subjectAltName=DNS:localhost' >"$folder/ext"
openssl x509 -req -in "$folder/server.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -days 2 -extfile "$folder/ext" -out "$folder/server.crt" 2>/dev/null
# The socket of the private PostgreSQL is in its folder.
socket=$(find "$database" -name '.s.PGSQL.*[0-9]' -printf '%h' -quit)
build/release/wavetune-server serve --port 0 --tls-certificate "$folder/server.crt" --tls-key "$folder/server.key" \
  --database "host=$socket dbname=wavetune user=postgres" >"$folder/server.out" 2>"$folder/server.log" &
server=$!
wait_until 60 grep -q https:// "$folder/server.out"
url=$(grep -o 'https://[^ ]*' "$folder/server.out" | head -1 | sed s/127.0.0.1/localhost/)
WAVETUNE_TOKEN=$token WAVETUNE_URL=$dev_url build/release/wavetune-agent run --state "$folder/agent" >"$folder/agent.out" 2>"$folder/agent.log" &
agent=$!
local_client() { WAVETUNE_TOKEN=$token WAVETUNE_URL=$dev_url build/release/wavetune "$@"; }
live() { local_client agents --json | grep -q '"state": "live"'; }
wait_until 60 live
environment=$(build/release/wavetune-agent env)

echo "== Debian"
for suite in bullseye bookworm trixie; do
  root=$work/$suite
  [ -e "$root/.made" ] || { rm -rf "$root"; mmdebstrap --quiet --mode=root --variant=minbase $suite "$root"; touch "$root/.made"; }
  install -m 755 $client "$root/usr/local/bin/wavetune"
  rm -rf "$root/srv/kernels" "$root/srv/cache" "$root/etc/pki" "$root/etc/ssl/certs/ca-certificates.crt"
  cp -r kernels "$root/srv/kernels"
  inside() { chroot "$root" env -i PATH=/usr/bin:/bin:/usr/local/bin HOME=/root WAVETUNE_URL="$url" WAVETUNE_TOKEN="$token" wavetune "$@"; }
  untrusted() { { inside jobs 2>&1 || true; } | grep -q "SSL certificate problem"; }
  trust() { install -D -m 644 "$folder/ca.crt" "$root$1"; }
  check "$suite: it starts" inside --version
  check "$suite: an unknown authority is refused" untrusted
  if [ $suite = bullseye ]; then
    trust /etc/pki/tls/certs/ca-bundle.crt
    check "$suite: it trusts RHEL's file" inside jobs
    rm -rf "$root/etc/pki"
  fi
  trust /etc/ssl/certs/ca-certificates.crt
  check "$suite: it trusts Debian's file" inside jobs
  check "$suite: a job is submitted and done" inside submit /srv/kernels/softmax:online --key rows=64,columns=256 --environment "$environment" --run $suite --wait
  check "$suite: jobs lists it" sh -c "chroot '$root' env WAVETUNE_URL='$url' WAVETUNE_TOKEN='$token' wavetune jobs --json | grep -q $suite"
  check "$suite: publish" inside publish --environment "$environment" --channel stable
  check "$suite: fetch" inside fetch --channel stable --environment "$environment" --to /srv/cache
  check "$suite: the cache is there" grep -q columns "$root/srv/cache/current/json/cache.json"
done

echo "== scratch"
root=$work/scratch
rm -rf "$root"
install -D -m 755 $static "$root/wavetune"
install -D -m 644 <(echo "127.0.0.1 localhost") "$root/etc/hosts"
scratch() { env -i WAVETUNE_URL="$url" WAVETUNE_TOKEN="$token" "$(command -v chroot)" "$root" /wavetune "$@"; }
fetched() { scratch fetch --channel stable --environment "$environment" --to /cache; }
untrusted() { { fetched 2>&1 || true; } | grep "SSL certificate problem"; }
check "scratch: an unknown authority is refused" untrusted
install -D -m 644 "$folder/ca.crt" "$root/etc/ssl/certs/ca-certificates.crt"
check "scratch: fetch" fetched
check "scratch: the cache is there" grep -q columns "$root/cache/current/json/cache.json"
checks_end
