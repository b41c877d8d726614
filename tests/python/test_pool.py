"""Workers: a crash costs one task, time runs out for one task, each environment has processes of its own."""

import os
import signal
import time

from wavetune._pack.pool import run_tasks


def collect(environments, run, processes=2, timeout_s=60.0):
    answers = {}
    run_tasks(environments, run, processes, timeout_s, lambda task, result, reason: answers.update({
        task: (result, reason)}))
    return answers


def test_every_task_is_answered_once_by_one_of_the_processes():
    answers = collect([{}] * 20, lambda task: (task * task, os.getpid()), 3)
    assert [answers[i][0][0] for i in range(20)] == [i * i for i in range(20)]
    assert 1 <= len({answers[i][0][1] for i in range(20)}) <= 3 and os.getpid() not in {a[0][1] for a in answers.values()}


def test_a_worker_that_crashes_costs_its_task_alone():
    def run(task):
        if task == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if task == 5:
            os._exit(7)
        return task

    answers = collect([{}] * 8, run)
    assert answers[2][0] is None and "signal 9 (SIGKILL)" in answers[2][1]
    assert answers[5][0] is None and "status 7" in answers[5][1]
    assert [answers[i][0] for i in (0, 1, 3, 4, 6, 7)] == [0, 1, 3, 4, 6, 7]


def test_a_task_that_takes_too_long_is_ended():
    for timeout_s in (1, 10, 100):  # a slow machine needs more time for the others too
        answers = collect([{}] * 3, lambda task: time.sleep(600) if task == 1 else task, timeout_s=timeout_s)
        assert answers[1][0] is None and f"more than {timeout_s} s" in answers[1][1]
        if answers[0] == (0, None) and answers[2] == (2, None):
            return
    raise AssertionError(answers)


def test_tasks_of_one_environment_run_where_it_is_set_and_nowhere_else():
    environments = [{"WAVETUNE_TEST": "a"}, {}, {"WAVETUNE_TEST": "b"}, {"WAVETUNE_TEST": "a"}, {}]
    answers = collect(environments, lambda task: (os.environ.get("WAVETUNE_TEST"), os.getpid()))
    assert [answers[i][0][0] for i in range(5)] == ["a", None, "b", "a", None]
    assert "WAVETUNE_TEST" not in os.environ
    by_process = {}
    for result, _ in answers.values():
        by_process.setdefault(result[1], set()).add(result[0])
    assert all(len(values) == 1 for values in by_process.values())


def test_output_of_a_compiler_does_not_reach_the_terminal(capfd):
    assert collect([{}], lambda task: (os.write(1, b"noise"), os.system("echo more; echo and more >&2"))[1]) == {
        0: (0, None)}
    assert capfd.readouterr() == ("", "")


def test_no_process_is_left():
    answers = collect([{}] * 4, lambda task: os.getpid())
    for result, _ in answers.values():
        assert not os.path.exists(f"/proc/{result}")
