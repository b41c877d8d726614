"""Kernels that attack the agent that measures them. An attack may cost its config or its job, and nothing else: the agent goes
on, and the next job is measured."""

import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import tempfile

import harness
import pytest
from harness import small_kernel, wait_until, wavetune

QUICK = ("--screen-rounds", "3", "--final-rounds", "10")
# What attacks are written with. They say on stderr, which is the agent's log, what came of them.
PRELUDE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <netinet/in.h>
#include <unistd.h>
static void say(const char *what, int failed) {
  dprintf(2, "attack: %s: %s\n", what, failed ? strerror(errno) : "SUCCEEDED");
}
static void try_open(const char *what, const char *path, int flags) {
  int fd = open(path, flags, 0600);
  say(what, fd < 0);
  if (fd >= 0)
    close(fd);
}
"""


def attacking_kernel(folder, attack, when="1"):
    """small_kernel whose object attacks when it is loaded, in the configs for which `when` holds, which may name REPEAT: 64 is
    the default, 1 the other config."""
    small_kernel(folder)
    source = folder / "quick.c"
    source.write_text(f"{PRELUDE}\n#if {when}\n__attribute__((constructor)) static void attack(void) {{\n{attack}\n}}\n#endif\n" +
                      source.read_text())
    return folder


class UnprivilegedAgent(harness.Program):
    """An agent that is not root, as it should be: the user nobody, where the tests are root."""

    def __init__(self, server, folder, options=(), environment=None, arguments=()):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="wt-sandbox-"))
        self.state = self.home / "state"
        program = self.home / "wavetune-agent"  # nobody need not see the build folder
        shutil.copy(harness.BUILD / "wavetune-agent", program)
        prefix = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(self.home, user.pw_uid, user.pw_gid)
            prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        full = {"HOME": str(self.home), "WAVETUNE_TOKEN": server.token, **(environment or {})}
        super().__init__([*prefix, program, "run", "--url", server.url, "--state", self.state, "--name", "node", *QUICK, *options],
                         folder, full)

    def kill(self):
        super().kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def attacks(self):
        """{what: what came of it} of all that kernels said."""
        return dict(re.findall(r"attack: (.+): (.+)", self.messages))


def submit(server, kernel, run=""):
    return json.loads(wavetune(server, "submit", kernel, "--key", "n=1003", "--run", run, "--json").stdout)[0]["job"]


def wait_ended(server, job):
    def ended():
        summary = server.get(f"/v1/jobs/{job}")
        return summary if summary["state"] in ("done", "failed", "cancelled") else None

    return wait_until(ended, 60, f"job {job} to end")


def assert_goes_on(server, agent, folder):
    """The agent is there still and tunes another kernel."""
    assert agent.process.poll() is None, agent.messages[-3000:]
    kernel = small_kernel(folder / "harmless")
    assert wait_ended(server, submit(server, kernel, "after"))["state"] == "done", agent.messages[-3000:]


@pytest.fixture
def agent(server, start):
    agent = start(UnprivilegedAgent, server)
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    yield agent
    agent.kill()


READ_PARENT = r"""
  static const struct { const char *name; int flags; } files[] = {
      {"environ", O_RDONLY}, {"mem", O_RDWR}, {"maps", O_RDONLY}, {"fd", O_RDONLY | O_DIRECTORY}, {"auxv", O_RDONLY}};
  for (int i = 0; i < 5; i++) {
    char path[64], what[64];
    snprintf(path, sizeof path, "/proc/%d/%s", getppid(), files[i].name);
    snprintf(what, sizeof what, "parent's %s", files[i].name);
    try_open(what, path, files[i].flags);
  }
"""


def test_a_kernel_cannot_read_the_memory_or_environment_of_the_agent(server, agent, tmp_path):
    job = submit(server, attacking_kernel(tmp_path / "kernel", READ_PARENT))
    wait_ended(server, job)
    attacks = agent.attacks()
    assert len(attacks) == 5 and set(attacks.values()) == {"Permission denied"}, attacks


def test_the_token_is_in_no_environment_and_no_command_line_even_for_root(server, start):
    by_flag = start(UnprivilegedAgent, server, options=("--token", server.token), environment={"WAVETUNE_TOKEN": "wt_" + 40 * "0"})
    for agent, token in ((start(UnprivilegedAgent, server), server.token), (by_flag, server.token)):
        wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
        processes = [agent.process.pid, *children_of(agent.process.pid)]
        for process in processes:
            for file in ("environ", "cmdline"):
                text = pathlib.Path(f"/proc/{process}/{file}").read_bytes()
                assert token.encode() not in text and b"wt_0000" not in text, (process, file, text)
        agent.kill()


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(child) for child in found]
