"""The threads of the wheel (python/wavetune/_runtime/worker.py)."""

import os
import threading

import pytest

from wavetune._runtime import counters, worker
from wavetune._runtime.worker import Jobs, Worker

S = 60.0


@pytest.fixture(autouse=True)
def counting():
    counters.reset()


def ended(own):
    own.end(S)
    return own.threads == 0


def test_jobs_are_done_in_order_and_the_thread_ends():
    done = []
    own = Jobs("test", done.append)
    for n in range(100):
        own.add(n)
    with own.condition:
        assert own.condition.wait_for(lambda: own.threads == 0, S)
    assert done == list(range(100))
    own.add(100)
    with own.condition:
        assert own.condition.wait_for(lambda: own.threads == 0, S)
    assert done[-1] == 100


def test_there_are_no_more_threads_than_are_allowed():
    here = threading.Barrier(3)
    own = Jobs("test", lambda _: here.wait(S), lambda: 3)
    for n in range(9):
        own.add(n)
        assert own.threads <= 3
    with own.condition:
        assert own.condition.wait_for(lambda: own.threads == 0, S)
    assert not own.queue


def test_a_job_that_is_not_begun_is_taken_out():
    begun, goes_on = threading.Event(), threading.Event()
    own = Jobs("test", lambda _: (begun.set(), goes_on.wait(S)))
    own.add("first")
    own.add("second")
    assert begun.wait(S) and own.take("second") and not own.take("second") and not own.take("first")
    goes_on.set()
    assert ended(own)


def test_nothing_is_begun_after_the_end_or_when_the_time_is_over():
    done = []
    own = Jobs("test", done.append)
    own.until = 0.0
    own.add("late")
    assert ended(own) and done == []
    own.until = float("inf")
    own.add("later")
    assert ended(own) and done == []


def test_at_the_end_what_is_left_is_done_and_nothing_is_waited_for():
    left = ["a", "b"]
    own = Worker("test", lambda: 3600.0 if not own.is_ended else left.pop if left else None)
    own.wake()
    assert ended(own) and left == []


def test_a_failure_is_counted_and_the_thread_goes_on(monkeypatch):
    monkeypatch.setattr(worker, "PAUSE_S", 0.0)
    done = []
    own = Jobs("test", lambda n: done.append(1 // n))
    for n in (0, 1):
        own.add(n)
    with own.condition:
        assert own.condition.wait_for(lambda: own.threads == 0, S)
    assert done == [1] and counters.failures == 1


def test_without_a_thread_the_owner_knows(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker.threading, "Thread", type("Thread", (threading.Thread,), {"start": start}))
    own = Worker("test", lambda: None)
    assert own.wake() is False and own.threads == 0


def test_a_child_of_a_fork_begins_anew():
    begun, goes_on, done = threading.Event(), threading.Event(), []
    own = Jobs("test", lambda job: (begun.set(), goes_on.wait(S), done.append(job)))
    own.add("the parent's")
    own.add("the parent's next")
    assert begun.wait(S)
    read, write = os.pipe()
    with own.condition:  # a thread of the parent may hold it
        child = os.fork()
        if child == 0:
            try:
                own.after_fork()
                goes_on.set()
                own.add("the child's")
                with own.condition:
                    own.condition.wait_for(lambda: own.threads == 0, S)
                os.write(write, repr(done).encode())
            finally:
                os._exit(0)
    os.close(write)
    assert os.read(read, 1000) == b'["the child\'s"]'
    os.waitpid(child, 0)
    goes_on.set()
    with own.condition:
        assert own.condition.wait_for(lambda: own.threads == 0, S)
    assert done == ["the parent's", "the parent's next"]
