#!/bin/sh
# An authority of your own, and a new key and certificate for each machine, put there by ssh as root.
#
#   certificates.sh DOMAIN FOLDER       FOLDER/hosts has a line for each machine: HOST GROUP [NAME]
#
# HOST gets /etc/wavetune/tls.crt for HOST.DOMAIN (and NAME.DOMAIN), valid 90 days as a server and as a client;
# /etc/wavetune/tls.key, which root and GROUP may read; and the authority among those that its programs trust. What runs there
# and does not notice new files by itself is reloaded. The first call makes the authority, FOLDER/ca.crt and ca.key: keep the
# key to yourself, and a copy of it.
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
while read -r host group name; do
  # shellcheck disable=SC2086
  openssl req $new -subj "/CN=$host.$domain" -addext "subjectAltName=DNS:$host.$domain${name:+,DNS:$name.$domain}" \
    -keyout host.key -out host.csr
  openssl x509 -req -in host.csr -CA ca.crt -CAkey ca.key -days 90 -copy_extensions copy -out host.crt
  ssh "$host" 'install -D -m 644 /dev/stdin /usr/local/share/ca-certificates/wavetune.crt' <ca.crt
  ssh "$host" 'install -D -m 644 /dev/stdin /etc/wavetune/tls.crt' <host.crt
  # shellcheck disable=SC2029 # the group is of this line of the list
  ssh "$host" "install -m 640 -g $group /dev/stdin /etc/wavetune/tls.key" <host.key
  rm host.key host.csr host.crt
  ssh -n "$host" 'update-ca-certificates
    for unit in postgresql nginx wavetune-agent; do
      if systemctl -q is-active $unit; then systemctl reload-or-restart $unit; fi
    done'
done <hosts
