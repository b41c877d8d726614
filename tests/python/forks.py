"""Runs `python3 -m MODULE` as subprocess.run does, but forked from a process that has imported Triton and our modules and knows
Triton's key, which is more than half of a command's work. That process is a fresh one, not pytest's: one for each MODULE of FORKED,
started for the first command and ended with pytest. A command has its own arguments, environment, folder and standard files.

A command starts for real where its module is not in FORKED, where a test gives it another path of modules, and where its environment
differs from that of the module's first command in a variable that is not LATE, which may matter when modules are imported. Tests of
the start itself call subprocess.
"""
import atexit
import contextlib
import importlib
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

LATE = ("PATH", "TRITON_CACHE_DIR", "WAVETUNE_", "PYTEST_", "TMPDIR", "HOME")  # how names begin of variables that no import reads
TRITON = ("triton", "triton.backends", "triton.compiler.compiler", "triton.runtime.cache")
FORKED = {
    "wavetune": (*TRITON, "wavetune._cli", "wavetune._pack.build", "wavetune._pack.source", "wavetune._pack.keys",
                 "wavetune._captured.build"),
    "wavetune._captured.interpret": (*TRITON, "triton.runtime.interpreter", "wavetune._captured.emulator", "wavetune._captured.module",
                                     "wavetune._captured.scaling")}
PLACES = {str(pathlib.Path(__file__).resolve().parents[2] / "python"), *os.environ.get("PYTHONPATH", "").split(":")}
servers = {}  # by module: the environment, the address; processes that pytest forks have them, too
lock = threading.Lock()


def early(environment):
    return {name: value for name, value in environment.items() if not name.startswith(LATE)}


def address(module, environment):
    """Of the process to fork from; None where there can be none."""
    if not PLACES.issuperset(environment.get("PYTHONPATH", "").split(":")):
        return None
    with lock:
        if module not in servers:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(f"\0wavetune-tests-{os.getpid()}-{module}")
                listener.listen(64)
                server = subprocess.Popen([sys.executable, __file__, str(listener.fileno()), module], env=environment,
                                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()])
                servers[module] = early(environment), listener.getsockname()
            atexit.register(server.communicate)  # it ends with its input
    stated, place = servers[module]
    return place if stated == early(environment) else None


def read(file, mode):
    with open(file, mode) as opened:
        return opened.read()


def run(argv, env=None, cwd=None, input=None, text=False, timeout=900, capture_output=True):
    argv, environment = list(map(str, argv)), dict(os.environ if env is None else env)
    place = address(argv[2], environment) if argv[:2] == [sys.executable, "-m"] and argv[2] in FORKED else None
    if place is None:
        return subprocess.run(argv, env=env, cwd=cwd, input=input, text=text, timeout=timeout, capture_output=capture_output)
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    with tempfile.TemporaryFile() as given, socket.socket(socket.AF_UNIX) as channel, ThreadPoolExecutor(2) as readers:
        given.write(input.encode() if isinstance(input, str) else input or b"")
        given.seek(0)
        channel.settimeout(timeout)
        channel.connect(place)
        socket.send_fds(channel, [b"."], [0 if input is None else given.fileno(), its_out, its_err])
        channel.sendall(json.dumps([argv[2:], environment, os.path.abspath(cwd or ".")]).encode() + b"\n")
        os.close(its_out), os.close(its_err)
        printed = readers.map(lambda one: read(one, "r" if text else "rb"), (out, err))
        try:
            status = int(channel.recv(16))
        except TimeoutError:
            channel.close()  # which kills it
            raise subprocess.TimeoutExpired(argv, timeout) from None
        return subprocess.CompletedProcess(argv, status, *printed)


def command(listener):
    """Serves until there is no input any more. Returns in the process of each command: its arguments."""
    while True:
        if 0 in select.select([listener, 0], [], [])[0]:
            os._exit(0)
        channel, _ = listener.accept()
        if os.fork() == 0:
            break
        channel.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):  # those that waited for earlier commands
                pass
    _, files, _, _ = socket.recv_fds(channel, 1, 3)
    argv, environment, folder = json.loads(channel.makefile().readline())
    child = os.fork()
    if child == 0:
        channel.close(), listener.close()
        for n, file in enumerate(files):
            os.dup2(file, n), os.close(file)
        os.environ.clear(), os.environ.update(environment)
        os.chdir(folder)
        sys.path[0] = folder
        return argv
    for file in files:
        os.close(file)
    if channel in select.select([channel, os.pidfd_open(child)], [], [])[0]:  # nobody waits any more
        os.kill(child, signal.SIGKILL)
        os._exit(0)
    channel.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


if __name__ == "__main__":
    for name in FORKED[sys.argv[2]]:
        importlib.import_module(name)
    importlib.import_module("wavetune._pack.artifacts").installed_key()
    sys.argv = command(socket.socket(fileno=int(sys.argv[1])))
    runpy._run_module_as_main(sys.argv[0])
