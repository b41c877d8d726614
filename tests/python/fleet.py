"""What the tests of launchers share: containers that launch kernels for real, where there is no GPU (tuned/launches.py)."""
import json
import subprocess
import sys

from conftest import TUNED
from starting import environment

KERNELS = 4
# Waits until $TOGETHER of it run, and while the file $HELD is there; fails as often as $BROKEN says.
COMPILER = """#!/bin/sh
echo begin >>"$LOG"
if [ -n "$TOGETHER" ]; then
  for i in $(seq 600); do
    [ "$(grep -c begin "$LOG")" -ge "$TOGETHER" ] && break
    sleep 0.05
  done
  [ "$(grep -c begin "$LOG")" -ge "$TOGETHER" ] || echo alone >>"$LOG"
fi
while [ -n "$HELD" ] && [ -e "$HELD" ]; do sleep 0.05; done
echo go >>"$LOG"
[ "$(grep -c go "$LOG")" -le "${BROKEN:-0}" ] && exit 1
exec cc "$@" -O0
"""


def make_library(folder):
    """Makes a folder with a stand-in for the CUDA driver's library, and the compiler."""
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", folder / "libcuda.so.1",
                    TUNED / "libcuda.c"], check=True)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "compiler").write_text(COMPILER)
    (folder / "compiler").chmod(0o755)
    return folder


def begun(report):
    return report["compilers"].count("begin")


class Fleet:
    """Runs launches.py, each time in a container of its own, with one server."""

    def __init__(self, server, library, folder):
        self.server, self.library, self.folder = server, library, folder

    def start(self, name, **variables):
        log = self.folder / f"{name}.log"
        own = {"WAVETUNE_SHARED_CODE": "1", "SOURCES": str(self.library), "TRITON_LIBCUDA_PATH": str(self.library),
               "LD_LIBRARY_PATH": str(self.library), "CC": str(self.library / "compiler"), "LOG": str(log), "COMPILERS": "3",
               **variables}
        argv = [sys.executable, "-m", "wavetune", "run", str(TUNED / "launches.py")]
        return subprocess.Popen(argv, env=environment(self.folder / name, self.server, **own), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True), log

    def run(self, name, **variables):
        """What it reported, and what its compilers said."""
        running, log = self.start(name, **variables)
        out, err = running.communicate(timeout=600)
        assert (running.returncode, err) == (0, ""), out + err
        return {**json.loads(out), "compilers": log.read_text().split() if log.exists() else []}
