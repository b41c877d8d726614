"""A pool of forked worker processes, each with an environment of its own, that outlives their
crashes: one that dies or takes too long costs its task. The parent has imported Triton and read the
kernel. Workers die with the parent, and before it returns.
"""

import ctypes
import math
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import wait
from typing import Any, Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.05  # while there may be more tasks


def end_with_parent() -> None:
    """This process is killed when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Worker:
    """A child that answers numbers of tasks, all of one environment, with their results."""

    def __init__(self, environment: Mapping[str, str], run: Callable[[int], Any], known: int):
        self.known = known  # tasks; it does not see what its parent was given later
        context = multiprocessing.get_context("fork")
        self.connection, their_end = context.Pipe(duplex=False)  # a sandbox has no sockets
        tasks, self._tasks = context.Pipe(duplex=False)
        self.environment = dict(environment)
        self.task: int | None = None
        self.deadline = 0.0
        self.process = context.Process(
            target=_work,
            args=((tasks, their_end), (self.connection, self._tasks), self.environment, run,
                  os.getpid()), daemon=True)
        self.process.start()
        tasks.close()
        their_end.close()

    def start(self, task: int, timeout_s: float) -> None:
        self.task, self.deadline = task, time.monotonic() + timeout_s
        try:
            self._tasks.send(task)
        except BrokenPipeError:
            pass  # it died meanwhile, which its other pipe says

    def stop(self) -> None:
        self.connection.close()
        self._tasks.close()
        self.process.kill()
        self.process.join()


def _work(own: tuple[Any, Any], parents: tuple[Any, Any], environment: Mapping[str, str],
          run: Callable[[int], Any], parent: int) -> None:
    end_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for end in parents:
        end.close()
    tasks, results = own
    process = os.getpid()
    os.environ.update(environment)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # compilers print what a failed config already says
        os.dup2(null, descriptor)
    while True:
        try:
            task = tasks.recv()
        except EOFError:
            os._exit(0)
        result = run(task)
        if os.getpid() != process:  # what was compiled started a process, which is not to answer
            os._exit(1)
        results.send(result)


def _death(process: Any) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"the compiler process was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"the compiler process ended with the status {code}"


class _Pool:
    def __init__(self, environments: Sequence[Mapping[str, str]], run: Callable[[int], Any],
                 processes: int, timeout_s: float, done: Callable[[int, Any, str | None], None],
                 more: Callable[[], bool] | None):
        self.environments, self.run, self.processes = environments, run, processes
        self.timeout_s, self.done, self.more = timeout_s, done, more
        self.n_tasks, self.waiting = 0, list[int]()
        self.workers: list[_Worker] = []

    def grow(self) -> None:
        """Takes the tasks that came since the last call."""
        if self.more is not None and not self.more():
            self.more = None
        self.waiting += range(self.n_tasks, len(self.environments))
        self.n_tasks = len(self.environments)

    def feed(self) -> None:
        """Gives idle workers a task that they know, of their environment, and starts more."""
        for worker in [w for w in self.workers if w.task is None]:
            own = next((t for t in self.waiting
                        if t < worker.known and dict(self.environments[t]) == worker.environment),
                       None)
            if own is None:
                worker.stop()
                self.workers.remove(worker)
            else:
                self.waiting.remove(own)
                worker.start(own, self.timeout_s)
        while self.waiting and len(self.workers) < self.processes:
            worker = _Worker(self.environments[self.waiting[0]], self.run, self.n_tasks)
            self.workers.append(worker)
            worker.start(self.waiting.pop(0), self.timeout_s)

    def take(self, worker: _Worker) -> None:
        """What a worker that can be read from has to say: a result, or that it is dead."""
        task, worker.task = worker.task, None
        try:
            result = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            self.workers.remove(worker)
            self.done(task, None, _death(worker.process))
        else:
            self.done(task, result, None)

    def expire(self) -> None:
        now = time.monotonic()
        for worker in [w for w in self.workers if w.task is not None and now > w.deadline]:
            worker.stop()
            self.workers.remove(worker)
            self.done(worker.task, None, f"compiling took more than {self.timeout_s:g} s")

    def run_all(self) -> None:
        try:
            self.grow()
            self.feed()
            while self.workers or self.more is not None:
                busy = {worker.connection: worker for worker in self.workers}
                least = min((worker.deadline for worker in self.workers), default=math.inf)
                least -= time.monotonic()
                if self.more is not None:
                    least = min(least, _POLL_S)
                for connection in wait(list(busy), max(0.0, least)):
                    self.take(busy[connection])
                self.expire()
                self.grow()
                self.feed()
        finally:
            for worker in self.workers:
                worker.stop()


def run_tasks(environments: Sequence[Mapping[str, str]], run: Callable[[int], Any], processes: int,
              timeout_s: float, done: Callable[[int, Any, str | None], None],
              more: Callable[[], bool] | None = None) -> None:
    """Calls run(i) in a worker with environments[i], and done(i, result, reason) here; with a
    reason there is no result. `more`: called again and again, may append to the environments;
    False: nothing will come any more. An interrupt ends all workers and goes on to the caller."""
    sys.stdout.flush()
    sys.stderr.flush()
    _Pool(environments, run, processes, timeout_s, done, more).run_all()
