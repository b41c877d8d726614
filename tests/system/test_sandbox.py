"""Kernels that attack the agent that measures them. An attack may fail its own config or job, but nothing else: the agent
continues and measures the next job."""

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
# The helpers of attacks. They print their outcome on stderr, which is the agent's log.
PRELUDE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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
#include <sys/ioctl.h>
#include <asm/sockios.h>
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
    """small_kernel whose object attacks when it is loaded, in the configs for which the C expression `when` is true. It may use
    REPEAT: 64 is the default, 1 the other config."""
    small_kernel(folder)
    source = folder / "quick.c"
    source.write_text(f"{PRELUDE}\n#if {when}\n__attribute__((constructor)) static void attack(void) {{\n{attack}\n}}\n#endif\n" +
                      source.read_text())
    return folder


class UnprivilegedAgent(harness.Program):
    """An agent that is not root, as it should be: the user nobody, where the tests are root."""

    def __init__(self, server, folder, options=(), environment=None):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="wt-sandbox-"))
        self.state = self.home / "state"
        program = self.home / "wavetune-agent"  # the user nobody may not read the build folder
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
        """{attempt: outcome} of all that kernels printed."""
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


FILES = r"""
  char path[4096];
  static const char *const files[] = {"agent", "spool", "objects", "kernels"};
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "STATE/%s", files[i]);
    try_open(files[i], path, O_RDONLY);
  }
  try_open("the spool, to write", "STATE/spool", O_WRONLY | O_APPEND);
  try_open("an object, to write", "STATE/objects/attack.so", O_WRONLY | O_CREAT);
  try_open("/etc/passwd", "/etc/passwd", O_RDONLY);
  try_open("the program", "HOME/wavetune-agent", O_RDONLY);
  try_open("/tmp, to write", "/tmp/wt-attack", O_WRONLY | O_CREAT);
  try_open("/dev/shm, to write", "/dev/shm/wt-attack", O_WRONLY | O_CREAT);
  try_open("the folder HOME", "HOME", O_RDONLY | O_DIRECTORY);
  try_open("its own environment", "/proc/self/environ", O_RDONLY);
  say("link in HOME", symlink("/etc/passwd", "HOME/link") < 0);
  say("link in the state", symlink("/dev/zero", "STATE/link") < 0);
  say("removal of the agent's id", unlink("STATE/agent") < 0);
  say("mode of the spool", chmod("STATE", 0777) < 0);
  say("length of the agent's id", truncate("STATE/agent", 0) < 0);
"""
PROCESSES = r"""
  say("fork", fork() < 0);
  say("vfork", syscall(SYS_vfork) < 0);
  say("session", setsid() < 0);
  say("group", setpgid(0, getppid()) < 0);
  say("another program", execl("/bin/true", "true", (char *)0) < 0);
  say("tracing the agent", ptrace(PTRACE_ATTACH, getppid(), 0, 0) < 0);
  char byte;
  struct iovec here = {&byte, 1}, there = {(void *)&errno, 1};
  say("memory of the agent", process_vm_readv(getppid(), &here, 1, &there, 1, 0) < 0);
  say("signal to the agent", kill(getppid(), 0) < 0);
  say("signal to the group", kill(0, 0) < 0);
  say("signal to all", kill(-1, 0) < 0);
  say("file descriptors of the agent", syscall(SYS_pidfd_open, getppid(), 0) < 0);
  say("limits of the agent", prlimit(getppid(), RLIMIT_NOFILE, &(struct rlimit){4, 4}, 0) < 0);
  say("outliving the agent", prctl(PR_SET_PDEATHSIG, 0) < 0);
  say("priority of others", setpriority(PRIO_USER, 0, 19) < 0);
"""
NETWORK = r"""
  static const struct { const char *name; int family; } families[] = {
      {"internet", AF_INET}, {"internet 6", AF_INET6}, {"local", AF_UNIX}, {"netlink", AF_NETLINK}};
  for (int i = 0; i < 4; i++)
    say(families[i].name, socket(families[i].family, SOCK_STREAM, 0) < 0);
"""
DESCRIPTORS = r"""
  int agent = getppid();
  say("the socket's signals to the agent", fcntl(3, F_SETOWN, agent) < 0);
  say("the output's signals to the agent", fcntl(2, F_SETOWN, agent) < 0);
  say("signals to its group", fcntl(3, F_SETOWN, -getpgid(agent)) < 0);
  struct { int type, pid; } owner = {1, agent};
  say("signals by another name", fcntl(3, 15, &owner) < 0);
  say("signals by ioctl", ioctl(3, FIOSETOWN, &agent) < 0);
  say("signals by an older ioctl", ioctl(3, SIOCSPGRP, &agent) < 0);
  say("another signal", fcntl(3, F_SETSIG, SIGKILL) < 0);
  say("a longer status page", ftruncate(4, 1 << 20) < 0);
  say("a status page that the agent cannot use", fcntl(4, F_ADD_SEALS, F_SEAL_WRITE) < 0);
"""
SIBLINGS = r"""
  int self = getpid(), seen[4] = {0};
  for (int pid = self > 66 ? self - 64 : 2; pid <= self + 64; pid++) {
    static const char *const files[] = {"mem", "environ"};
    for (int i = 0; i < 2 && pid != self; i++) {
      char path[64];
      snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
      seen[i] += open(path, O_RDONLY) >= 0;
    }
    seen[2] += pid != self && kill(pid, 0) == 0;
    seen[3] += pid != self && ptrace(PTRACE_SEIZE, pid, 0, 0) == 0;
  }
  errno = EPERM;
  say("memory of a sibling", !seen[0]);
  say("environment of a sibling", !seen[1]);
  say("signal to a sibling", !seen[2]);
  say("tracing a sibling", !seen[3]);
"""
SCHEDULING = r"""
  int agent = getppid(), threads = 0, cpu = 0;
  struct sched_param none = {0};
  unsigned attributes[12] = {48, SCHED_IDLE};
  cpu_set_t before, one, after;
  say("policy of the agent", sched_setscheduler(agent, SCHED_IDLE, &none) < 0);
  say("parameters of the agent", sched_setparam(agent, &none) < 0);
  say("attributes of the agent", syscall(SYS_sched_setattr, agent, attributes, 0) < 0);
  say("priority of the agent", setpriority(PRIO_PROCESS, agent, 19) < 0);
  say("disk priority of the agent", syscall(SYS_ioprio_set, 1, agent, 3 << 13) < 0);
  for (int thread = agent + 1; thread < agent + 64; thread++)
    threads += sched_setscheduler(thread, SCHED_IDLE, &none) == 0;
  errno = EPERM;
  say("policy of its threads", !threads);
  sched_getaffinity(agent, sizeof before, &before);
  while (!CPU_ISSET(cpu, &before))
    cpu++;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  for (int thread = agent; thread < agent + 64; thread++)
    sched_setaffinity(thread, sizeof one, &one); /* answered as done: ROCr's threads need it */
  sched_getaffinity(agent, sizeof after, &after);
  errno = EPERM;
  say("CPUs of the agent", CPU_EQUAL(&before, &after));
"""
ATTACKS = {
    "siblings": (SIBLINGS, 4, {"Operation not permitted"}),
    "descriptors": (DESCRIPTORS, 9, {"Operation not permitted"}),
    "files": (FILES, 17, {"Permission denied", "Operation not permitted"}),
    "processes": (PROCESSES, 14, {"Operation not permitted"}),
    "scheduling": (SCHEDULING, 7, {"Operation not permitted"}),
    "network": (NETWORK, 4, {"Operation not permitted"}),
}


def aimed(attack, agent):
    return attack.replace("STATE", str(agent.state)).replace("HOME", str(agent.home))


@pytest.mark.parametrize("name", ATTACKS)
def test_a_kernel_reaches_nothing_beyond_its_process(server, agent, tmp_path, name):
    attack, n, refusals = ATTACKS[name]
    wait_ended(server, submit(server, attacking_kernel(tmp_path / "kernel", aimed(attack, agent))))
    attacks = agent.attacks()
    assert len(attacks) == n and set(attacks.values()) <= refusals, attacks
    assert_goes_on(server, agent, tmp_path)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_reference_reaches_nothing_beyond_its_process(server, agent, tmp_path, name):
    attack, n, refusals = ATTACKS[name]
    kernel = small_kernel(tmp_path / "kernel")
    reference = kernel / "reference.c"
    reference.write_text(f"{PRELUDE}\n__attribute__((constructor)) static void attack(void) {{\n{aimed(attack, agent)}\n}}\n" +
                         reference.read_text())
    assert wait_ended(server, submit(server, kernel))["state"] == "done"
    attacks = agent.attacks()
    assert len(attacks) == n and set(attacks.values()) <= refusals, attacks


# Attacks that succeed without confinement: otherwise the tests above could pass because an attack is wrong.
UNCONFINED = r"""
  try_open("/etc/passwd", "/etc/passwd", O_RDONLY);
  try_open("the spool, to write", "STATE/spool", O_WRONLY | O_APPEND);
  try_open("an object, to write", "STATE/objects/attack.so", O_WRONLY | O_CREAT);
  say("mode of the state", chmod("STATE", 0700) < 0);
  try_open("the agent's environment", getppid_file("environ"), O_RDONLY);
  try_open("the agent's memory", getppid_file("mem"), O_RDWR);
  say("internet", socket(AF_INET, SOCK_STREAM, 0) < 0);
  say("signal to the agent", kill(getppid(), 0) < 0);
  say("the socket's signals to the agent", fcntl(3, F_SETOWN, getppid()) < 0);
  fcntl(3, F_SETOWN, 0);
  pid_t child = fork();
  if (child == 0) { setsid(); _exit(0); }
  say("fork", child < 0);
"""
PARENT_FILE = r"""
static const char *getppid_file(const char *name) {
  static char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", getppid(), name);
  return path;
}
"""


@pytest.mark.parametrize("level", ["none", "landlock"])
def test_what_confinement_prevents_works_without_it(server, start, tmp_path, level):
    agent = start(UnprivilegedAgent, server, environment={"WAVETUNE_SANDBOX": level, "WAVETUNE_DUMPABLE": "1"})
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    kernel = attacking_kernel(tmp_path / "kernel", aimed(UNCONFINED, agent))
    source = kernel / "quick.c"
    source.write_text(source.read_text().replace("#if 1\n", PARENT_FILE + "#if 1\n", 1))
    assert wait_ended(server, submit(server, kernel))["state"] == "done", agent.messages[-3000:]
    attacks = agent.attacks()
    succeeded = {what for what, came_of_it in attacks.items() if came_of_it == "SUCCEEDED"}
    assert len(attacks) == 10 and succeeded == (set(attacks) if level == "none" else set()), attacks
    agent.kill()


def test_a_forged_answer_is_stored_as_self_timed(server, agent, tmp_path):
    forged = {"config": 1, "outcome": "correct", "timer": "clock", "samples_us": 3 * [0.001], "baseline_us": 3 * [1.0],
              "device_us": 1, "conditions": {"sandbox": "landlock", "self_timed": False, "scheduling": "forged"}}
    attack = f"dprintf(3, \"%s\\n\", {json.dumps(json.dumps(forged))});"
    job = submit(server, attacking_kernel(tmp_path / "kernel", attack, "REPEAT == 64"))
    stored = wait_until(lambda: [m for m in server.items(f"/v1/jobs/{job}/measurements") if 0.001 in (m["samples_us"] or [])], 60,
                        "the forged measurement")
    assert all(m["conditions"]["self_timed"] is True and "scheduling" not in m["conditions"] for m in stored), stored


def test_a_reference_is_not_in_the_process_that_measures(server, agent, tmp_path):
    kernel = small_kernel(tmp_path / "kernel")
    for file, what in (("reference.c", "reference"), ("quick.c", "kernel")):
        source = kernel / file
        source.write_text(f'{PRELUDE}\n__attribute__((constructor)) static void name(void) {{ dprintf(2, "{what} in %d\\n", getpid()); }}\n'
                          + source.read_text())
    assert wait_ended(server, submit(server, kernel))["state"] == "done"
    processes = {what: set(re.findall(rf"{what} in (\d+)", agent.messages)) for what in ("reference", "kernel")}
    assert processes["reference"] and processes["kernel"] and not processes["reference"] & processes["kernel"], processes


def test_measurements_record_how_their_process_was_confined(server, agent, tmp_path):
    job = submit(server, small_kernel(tmp_path / "kernel"))
    wait_ended(server, job)
    conditions = [m["conditions"] for m in server.items(f"/v1/jobs/{job}/measurements") if m["outcome"] == "correct"]
    assert conditions and {(c["sandbox"], c["self_timed"]) for c in conditions} == {("landlock", True)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root")
def test_an_agent_that_is_root_runs_kernels_as_another_user(server, start, tmp_path):
    agent = start(harness.Agent, server, options=(*QUICK, "--worker-user", "nobody"))
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    attack = 'dprintf(2, "is %d of %d\\n", getuid(), getgid()); try_open("the agent\'s id", "STATE/agent", O_RDONLY);'
    kernel = attacking_kernel(tmp_path / "kernel", attack.replace("STATE", str(agent.state)))
    assert wait_ended(server, submit(server, kernel))["state"] == "done", agent.messages[-3000:]
    user = pwd.getpwnam("nobody")
    assert set(re.findall(r"is (\d+ of \d+)", agent.messages)) == {f"{user.pw_uid} of {user.pw_gid}"}


def test_a_worker_user_needs_root_and_a_user(tmp_path):
    done = subprocess.run([harness.BUILD / "wavetune-agent", "tune", harness.QUICK, "--key", "n=7", "--state", tmp_path,
                           "--worker-user", "nosuchuser"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "--worker-user: " in done.stderr


EVIL_OBJECT = r"""
__attribute__((constructor)) static void attack(void) { dprintf(2, "attack: another's object: SUCCEEDED\n"); }
"""


def tune(state, *options, environment=None):
    return subprocess.run([harness.BUILD / "wavetune-agent", "tune", harness.QUICK, "--key", "n=1003", "--only", "0", "--state", state,
                           *QUICK, *options], capture_output=True, text=True, timeout=600, env={**os.environ, **(environment or {})})


def test_an_object_that_was_changed_is_not_loaded_but_compiled_anew(tmp_path):
    assert tune(tmp_path / "state").returncode == 0
    source = tmp_path / "evil.c"
    source.write_text(PRELUDE + EVIL_OBJECT)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "evil.so", source], check=True)
    objects = list((tmp_path / "state/objects").glob("*.so"))
    for path in objects:
        shutil.copy(tmp_path / "evil.so", path)
    again = tune(tmp_path / "state")
    assert again.returncode == 0 and "SUCCEEDED" not in again.stderr, again.stderr
    assert objects and again.stderr.count("is compiled again") == len(objects)


def test_the_log_says_once_whether_workers_have_cgroups(tmp_path):
    done = tune(tmp_path / "state", "--worker-memory-mb", "2048", environment={"WAVETUNE_LOG": "debug"})
    output = [line for line in done.stderr.splitlines() if "cgroup" in line]
    assert done.returncode == 0 and len(output) == 1, done.stderr
    assert re.search("2048 MiB and 1024 processes|no cgroups of their own, .*: .", output[0]), output


def test_an_agent_without_a_sandbox_logs_that_and_is_refused_where_one_is_required(tmp_path):
    for level, required, code in (("none", (), 0), ("none", ("--require-sandbox=seccomp",), 1), ("seccomp", ("--require-sandbox=seccomp",), 0),
                                  ("nothing", (), 1)):
        done = tune(tmp_path / "state", *required, environment={"WAVETUNE_SANDBOX": level})
        assert done.returncode == code and "WAVETUNE_SANDBOX" in done.stderr, (level, required, done.stderr)


# The harm of each fails only its config, or its job.
HARMFUL = {
    "the status page cut off": "ftruncate(4, 0);",
    "answers that are none": 'dprintf(3, "this is no answer\\n");',
    "answers without an end": """
      static char line[] = "{\\"config\\": 999999}\\n";
      while (write(3, line, sizeof line - 1) > 0)
        ;""",
    "a line without an end": """
      static char part[65536];
      memset(part, 'x', sizeof part);
      while (write(3, part, sizeof part) > 0)
        ;""",
    "the status page written to without an end": """
      volatile int64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 4, 0);
      for (int64_t n = 0;; n++)
        page[2] = n;""",
    "descriptors through the socket": r"""
      for (int i = 0; i < 20000; i++) {
        char byte = ' ', space[CMSG_SPACE(4 * sizeof(int))] = {0};
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(4 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(header), (int[]){0, 1, 2, 4}, 4 * sizeof(int));
        sendmsg(3, &message, MSG_NOSIGNAL);
      }""",
    "descriptors duplicated and moved": """
      while (dup(3) >= 0 && dup(4) >= 0)
        ;
      fcntl(3, F_SETFL, O_NONBLOCK);
      fcntl(2, F_SETFL, O_NONBLOCK | O_ASYNC);
      lseek(4, 1 << 20, SEEK_SET);
      write(4, "x", 1);
      shutdown(3, SHUT_RD);""",
    "forged results": 'dprintf(3, "{\\"done\\": true, \\"over_budget\\": false}\\n{\\"passed\\": true}\\n{\\"opened\\": true}\\n");',
    "descriptors closed": "for (int fd = 0; fd < 64; fd++) close(fd);",
    "a log without an end": 'for (int i = 0; i < 100000; i++) dprintf(2, "noise noise noise noise noise noise %d\\n", i);',
    "its own death": "kill(getpid(), SIGKILL);",
    "all its memory": "for (;;) memset(malloc(1 << 24), 1, 1 << 12);",
    "a hang": "for (;;) pause();",
    "a stop": "raise(SIGSTOP);",
}


@pytest.mark.parametrize("name", HARMFUL)
def test_harm_by_a_kernel_affects_only_its_own_config(server, start, tmp_path, name):
    # A writer of the status page is ended at the limit of a whole request, which grows with the rounds.
    quick = ("--screen-rounds", "2") if "status page" in name else ()
    agent = start(UnprivilegedAgent, server, options=("--config-timeout", "1" if quick else "2", "--open-timeout", "10", *quick))
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    job = submit(server, attacking_kernel(tmp_path / "kernel", HARMFUL[name], "REPEAT == 64"))
    wait_ended(server, job)
    assert_goes_on(server, agent, tmp_path)
    if os.geteuid() == 0:
        assert len(os.listdir(f"/proc/{agent.process.pid}/fd")) < 100
    assert len(agent.messages) < 1 << 20
    assert agent.stop() == 0
    left = subprocess.run(["pgrep", "-f", f"^{agent.home}"], capture_output=True, text=True).stdout
    assert not left, left
    agent.kill()


@pytest.mark.parametrize("name", ["answers that are none", "answers without an end", "descriptors through the socket", "its own death",
                                  "a hang"])
def test_harm_by_a_reference_affects_only_its_own_job(server, start, tmp_path, name):
    agent = start(UnprivilegedAgent, server, options=("--config-timeout", "2", "--open-timeout", "5"))
    wait_until(lambda: "enrolled" in agent.messages, 30, "the agent to enrol")
    kernel = small_kernel(tmp_path / "kernel")
    reference = kernel / "reference.c"
    reference.write_text(f"{PRELUDE}\n__attribute__((constructor)) static void attack(void) {{\n{HARMFUL[name]}\n}}\n" +
                         reference.read_text())
    wait_ended(server, submit(server, kernel))
    assert_goes_on(server, agent, tmp_path)
    assert agent.stop() == 0
    agent.kill()
