"""The threads of the wheel: each is one of a worker's, which has as many as there is work for, and
none without.

A worker's owner keeps what there is to do, and says what is next, under the worker's condition.
After a fork the child begins anew: the parent's threads go on in the parent, and may hold its
locks.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections import deque
from typing import Any, Callable, Union

from . import counters
from .log import surprised

PAUSE_S = 1.0  # after a failure, which the next attempt may have too
Next = Union[Callable[[], Any], float, None]


class Worker:
    """`next_`: a function to call now, seconds until there is one, or None: nothing to do, so that
    the thread ends. `most`: how many threads there may be."""

    def __init__(self, name: str, next_: Callable[[], Next], most: Callable[[], int] = lambda: 1):
        self.name, self.next, self.most = name, next_, most
        self.after_fork()

    def after_fork(self) -> None:
        self.condition = threading.Condition()
        self.threads, self.is_ended = 0, False

    def wake(self) -> bool:
        """There may be something to do. False: there is no thread for it."""
        with self.condition:
            if self.threads < self.most():
                self.threads += 1
                try:
                    threading.Thread(target=self._work, args=(self.condition,), daemon=True,
                                     name=f"wavetune-{self.name}").start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    self.threads -= 1
            self.condition.notify_all()
            return self.threads > 0

    def end(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> None:
        """The program ends: the threads get that time for what is left, or until it is done."""
        started = time.monotonic()
        with self.condition:
            self.is_ended = True
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.threads == 0 or is_done(), seconds)
        counters.lost_ms += (time.monotonic() - started) * 1000

    def _work(self, condition: threading.Condition) -> None:
        while True:
            with condition:
                if condition is not self.condition:
                    return  # of the parent, before a fork
                found = self.next()
                if found is None or self.is_ended and not callable(found):
                    self.threads -= 1
                    condition.notify_all()
                    return
                if not callable(found):
                    condition.wait(found)
                    continue
            try:
                found()
            except Exception as error:
                surprised(f"wavetune-{self.name}", error)
                time.sleep(PAUSE_S)


class Jobs(Worker):
    """A queue: `run` is called with each job, in order; none after `until`, or at the end."""

    def __init__(self, name: str, run: Callable[[Any], Any], most: Callable[[], int] = lambda: 1):
        self.run = run
        super().__init__(name, self._next, most)

    def after_fork(self) -> None:
        super().after_fork()
        self.queue: deque[Any] = deque()
        self.until = float("inf")

    def _next(self) -> Next:
        if not self.queue or self.is_ended or time.monotonic() >= self.until:
            return None
        return functools.partial(self.run, self.queue.popleft())

    def add(self, job) -> None:
        with self.condition:
            self.queue.append(job)
            self.wake()

    def take(self, job) -> bool:
        """Takes a job out that is not begun; whether it was there."""
        with self.condition:
            if job not in self.queue:
                return False
            self.queue.remove(job)
            return True


class Early(Jobs):
    """Jobs by name, done ahead: `make(*work)` gives what the program would make itself, or None."""

    class Job:
        def __init__(self, work: tuple[Any, ...]):
            self.work, self.result, self.done = work, None, threading.Event()

    def __init__(self, name: str, make: Callable[..., Any], most: Callable[[], int]):
        self.make = make
        self.named: dict[str, Early.Job] = {}
        super().__init__(name, self._make, most)

    def after_fork(self) -> None:
        super().after_fork()
        self.named = {name: job for name, job in self.named.items() if job.done.is_set()}

    def begin(self, name: str, *work) -> None:
        with self.condition:
            if not self.is_ended and name not in self.named:
                self.named[name] = self.Job(work)
                self.add(self.named[name])

    def _make(self, job: Job) -> None:
        try:
            job.result = self.make(*job.work)
        finally:
            job.done.set()

    def result(self, name: str, seconds: float):
        """What the job made, waited for; None: the program makes it, also if it was not begun."""
        with self.condition:
            job = self.named.pop(name, None)
            if job is None or self.take(job):
                return None
        job.done.wait(seconds)
        return job.result


def threads_max() -> int:
    """For compilers: one for each core of the process, less one for the program."""
    try:
        cores = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        cores = os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")  # of torchrun: all of them start at once
    return max(1, cores // (int(ranks) if ranks.isdigit() and 0 < int(ranks) <= 1024 else 1) - 1)
