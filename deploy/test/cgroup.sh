#!/usr/bin/env bash
# Shows on an emulated machine with cgroup v2 and systemd that a kernel that exceeds a limit affects only its own config. The
# shipped unit starts the agent there, as its own user, but with `tune` in place of `run`.
#
#   deploy/test/cgroup.sh [BUILD]     default: build/dev
#
# Kernels: one config starts threads endlessly, one fills memory through memfds, which no rlimit bounds. A second round runs
# without seccomp and Landlock (WAVETUNE_SANDBOX=none): there, one config also forks endlessly into new sessions, which
# outlive a killed process group and which only the cgroup ends.
# Needs: root; Debian; its packages qemu-system-x86 mmdebstrap cpio zstd kmod; Debian's mirror (250 MB); 4 GiB of memory; BUILD.
# Takes: three to ten minutes.
#
# It leaves the machine's tree in $WORK (default build/cgroup-test) for the next run. It listens on no port, and the emulated
# machine has no network. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/test/checks.sh
help_asked "$@"
build=$(realpath -m "${1:-build/dev}")
needs root memory:4 qemu-system-x86_64 mmdebstrap cpio zstd depmod "$build/wavetune-agent"
work=${WORK:-$PWD/build/cgroup-test}
suite=bookworm
mkdir -p "$work"
work=$(realpath "$work")

if [ ! -e "$work/root/.made" ]; then
  rm -rf "$work/root" "$work/kernel"
  packages=systemd,systemd-sysv,dbus,libnss-systemd,procps,kmod,gcc,libc6-dev,libjansson4,libseccomp2,libarchive13,libelf1
  packages+=,libmsgpackc2,libzstd1,libcurl4,libssl3,libmicrohttpd12,libpq5,libdw1
  mmdebstrap --mode=root --variant=minbase --include=$packages $suite "$work/root"
  rm -rf "$work"/root/usr/share/{doc,man,locale} "$work"/root/var/{cache/apt,lib/apt/lists}/*
  name=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ { print $2; exit }')
  mkdir -p "$work/kernel"
  (cd "$work" && apt-get download "$name" && dpkg-deb -x "$name"_*.deb kernel)
  touch "$work/root/.made"
fi

# What this run adds to the tree.
root=$work/run
rm -rf "$root"
cp -a "$work/root" "$root"
install -m 755 "$build/wavetune-agent" "$root/usr/bin/wavetune-agent"
mkdir -p "$root/etc/systemd/system/wavetune-agent.service.d" "$root/usr/lib/sysusers.d" "$root/srv"
sed 's,@BINDIR@,/usr/bin,' deploy/systemd/wavetune-agent.service.in >"$root/etc/systemd/system/wavetune-agent.service"
cp deploy/systemd/wavetune-agent.sysusers "$root/usr/lib/sysusers.d/wavetune-agent.conf"
cat >"$root/etc/systemd/system/wavetune-agent.service.d/tune.conf" <<'END'
[Service]
Type=oneshot
Restart=no
TimeoutStartSec=600
StandardOutput=file:/run/tune.out
StandardError=file:/run/tune.err
ExecStart=
ExecStart=/usr/bin/wavetune-agent tune /srv/kernel --key n=1003 --json --state /var/lib/wavetune-agent \
  --samples /var/lib/wavetune-agent/samples --screen-rounds 3 --final-rounds 12 --processes 3 \
  --config-timeout 60 --open-timeout 300 --worker-memory-mb 256 --worker-pids 64
END
cat >"$root/etc/systemd/system/wavetune-test.service" <<'END'
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/srv/test.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -sf ../wavetune-test.service "$root/etc/systemd/system/multi-user.target.wants/"

cp -r tests/data/kernels/quick "$root/srv/kernel"
python3 - "$root/srv/kernel" <<'END'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
attack = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *wait_for_ever(void *unused) { for (;;) pause(); }
__attribute__((constructor)) static void attack(void) {
#if REPEAT == 2
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 16384);
  for (int i = 0; i < 10000; i++)
    if (pthread_create(&thread, &small, wait_for_ever, 0) != 0) abort();
#elif REPEAT == 3
  static char block[1 << 20];
  memset(block, 1, sizeof block);
  for (;;) {
    int fd = memfd_create("eater", 0);
    for (int i = 0; i < 4096; i++)
      if (write(fd, block, sizeof block) < 0) break;
  }
#elif REPEAT == 4
  for (int i = 0; i < 10000; i++)
    if (fork() == 0) { setsid(); for (;;) pause(); }
  abort();
#endif
}
"""
source = next(folder.glob("quick.c"))
source.write_text(attack + source.read_text())
# Config 4 is tested only without confinement: a confined one cannot fork, and does no harm.
for name, values in (("confined", [64, 1, 2, 3]), ("bare", [64, 1, 4])):
    (folder / f"space-{name}.json").write_text(json.dumps({"parameters": {"REPEAT": values, "TURN": [0]}, "default": {"REPEAT": 64, "TURN": 0}}))
END

cat >"$root/srv/test.sh" <<'END'
#!/bin/sh
# One line for each thing that must hold: "ok …" or "NOT OK …".
samples=/var/lib/private/wavetune-agent/samples
check() { what=$1; shift; if "$@" >/dev/null 2>&1; then echo "ok $what"; else echo "NOT OK $what"; fi; }
group=/sys/fs/cgroup/system.slice/wavetune-agent.service
for round in confined bare; do
  cp /srv/kernel/space-$round.json /srv/kernel/space.json
  echo "WAVETUNE_LOG=info" >/etc/wavetune-agent.env
  [ $round = confined ] || echo "WAVETUNE_SANDBOX=none" >>/etc/wavetune-agent.env
  systemd-sysusers
  systemctl start wavetune-agent.service
  check "$round: the agent went on to a verdict" grep -q '"verdict"' /run/tune.out
  check "$round: it had cgroups" grep -q 'a cgroup of its own, with at most 256 MiB and 64 processes' /run/tune.err
  check "$round: nothing outlived it" sh -c '! pgrep -f "^wavetune-agent worker"'
  check "$round: no cgroup is left" sh -c "! ls -d $group/child-*"
  if [ $round = confined ]; then
    check "threads: ended by pids.max" grep -q 'more processes and threads than --worker-pids' $samples
    check "memory: ended by memory.max" grep -q 'more memory than --worker-memory-mb' $samples
    check "memory: the kernel says so" sh -c 'dmesg | grep -q "Memory cgroup out of memory"'
  else
    check "forks: ended by pids.max" grep -q 'more processes and threads than --worker-pids' $samples
  fi
  cat /run/tune.err
  cut -c1-300 /run/tune.out
  grep -v correct $samples | cut -c1-400
done
echo DONE
systemctl --no-block poweroff
END
chmod 755 "$root/srv/test.sh"
sed -i 's,^EnvironmentFile=.*,EnvironmentFile=-/etc/wavetune-agent.env,' "$root/etc/systemd/system/wavetune-agent.service"

(cd "$root" && find . | cpio -o -H newc --quiet) | zstd -q -1 -T2 -f -o "$work/initrd.zst"
rm -rf "$root"
timeout 900 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 3072 -smp 2 -nographic -nodefaults \
  -serial "file:$work/console.txt" -nic none -no-reboot -kernel "$(ls "$work"/kernel/boot/vmlinuz-*)" -initrd "$work/initrd.zst" \
  -append 'console=ttyS0 rdinit=/sbin/init loglevel=4 systemd.show_status=0' </dev/null || true

tr -d '\r' <"$work/console.txt" | grep -E '^(ok|NOT OK) ' || true
ok=$(tr -d '\r' <"$work/console.txt" | grep -c '^ok ' || true)
bad=$(tr -d '\r' <"$work/console.txt" | grep -c '^NOT OK ' || true)
echo "$ok passed, $bad failed (whole output: $work/console.txt)"
grep -q DONE "$work/console.txt" && [ "$bad" -eq 0 ] && [ "$ok" -gt 0 ]
