#!/bin/sh
# An authority of your own, and a new key and certificate for each machine, put there by ssh as root.
#
#   certificates.sh DOMAIN FOLDER       FOLDER/hosts has a line for each machine: HOST GROUP [NAME]
#
# HOST gets /etc/wavetune/tls.crt for HOST.DOMAIN (and NAME.DOMAIN), valid 90 days as a server and as a client;
# /etc/wavetune/tls.key, which root and GROUP may read; and the authority among those that its programs trust. What runs there
# and does not notice new files by itself is reloaded. A machine that cannot be reached does not stop the others. The first call
# makes the authority, FOLDER/ca.crt and ca.key: keep the key to yourself, and a copy of it.
set -eu
[ $# -eq 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
umask 077
domain=$1
cd "$2"
new='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
if [ ! -e ca.key ]; then
  # shellcheck disable=SC2086
  openssl req -x509 $new -days 3650 -subj '/CN=wavetune authority' -keyout ca.key.new -out ca.crt
  mv ca.key.new ca.key
fi
# shellcheck disable=SC2086,SC2029 # $new is several words; the group is of this line of the list
given() { # HOST GROUP NAME; returns whether all went well
  openssl req $new -subj "/CN=$1.$domain" -addext "subjectAltName=DNS:$1.$domain${3:+,DNS:$3.$domain}" -keyout host.key -out host.csr &&
    openssl x509 -req -in host.csr -CA ca.crt -CAkey ca.key -days 90 -copy_extensions copy -out host.crt &&
    ssh "$1" 'install -D -m 644 /dev/stdin /usr/local/share/ca-certificates/wavetune.crt' <ca.crt &&
    ssh "$1" 'install -D -m 644 /dev/stdin /etc/wavetune/tls.crt.new' <host.crt &&
    ssh "$1" "install -m 640 -g '$2' /dev/stdin /etc/wavetune/tls.key.new" <host.key &&
    ssh -n "$1" 'set -e
      mv /etc/wavetune/tls.key.new /etc/wavetune/tls.key
      mv /etc/wavetune/tls.crt.new /etc/wavetune/tls.crt
      update-ca-certificates
      for unit in postgresql nginx wavetune-agent; do
        if systemctl -q is-active $unit; then systemctl reload-or-restart $unit; fi
      done'
}
failed=''
while read -r host group name; do
  given "$host" "$group" "$name" || failed="$failed $host"
  rm -f host.key host.csr host.crt
done <hosts
[ -z "$failed" ] || { echo "certificates.sh: no new certificate for$failed: see above, and call it again" >&2; exit 1; }
