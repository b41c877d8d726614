"""The checker on histories made by hand: a good one, and for each way to break a rule a bad one."""

import copy
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import checker  # noqa: E402


def change(row, id_, was, now):
    return {"kind": "change", "row": row, "id": id_, "was": was, "now": now}


def job(state, stage="screen", events=1):
    return {"state": state, "stage": stage, "round": 0, "events": events}


def lease(state, epoch):
    return {"state": state, "epoch": epoch}


def measurement(seq, config, stage="final", process=0, **more):
    return {"kind": "measurement", "lease": "7", "epoch": 1, "seq": seq, "config": config, "job": "1", "stage": stage, "round": 0,
            "process": process, "late": False, "quarantined": False, "sample": 0.1, **more}


GOOD = [
    {"kind": "submit", "job": "1"}, {"kind": "submit", "job": "2"}, {"kind": "cancel", "job": "2"},
    change("jobs", "1", None, job("queued")),
    change("jobs", "1", job("queued"), job("running", events=2)),
    change("jobs", "1", job("running", events=2), job("running", "final", 3)),
    change("jobs", "1", job("running", "final", 3), job("done", "final", 4)),
    change("leases", "7", None, lease("open", 0)),
    change("leases", "7", lease("open", 0), lease("held", 1)),
    change("leases", "7", lease("held", 1), lease("done", 1)),
    {"kind": "live", "t": 1, "leases": [["7", "1", "screen", 0, 0, [[0, 2]]], ["8", "1", "screen", 0, 0, [[2, 4]]],
                                        ["9", "1", "screen", 0, 1, [[0, 4]]]]},
    {"kind": "post", "who": "a", "lease": "7", "epoch": 1, "status": 200, "accepted": 2,
     "measurements": [[1, 0, 0.1], [2, 1, 0.1]]},
    {"kind": "post", "who": "a", "lease": "7", "epoch": 1, "status": 409, "accepted": 0, "measurements": [[9, 0, 5.0]]},
    {"kind": "move", "server": "s1", "if_match": 0, "release": "a", "status": 200, "counter": 1},
    {"kind": "move", "server": "s1", "if_match": 1, "release": "b", "status": 0, "counter": 0},
    {"kind": "move", "server": "s2", "if_match": 1, "release": "a", "status": 412, "counter": 0},
    {"kind": "move", "server": "s2", "if_match": 2, "release": "b", "status": 200, "counter": 2},
    change("channels", "1", None, {"counter": 1}), change("channels", "1", {"counter": 1}, {"counter": 2}),
    {"kind": "channel_read", "reader": "m", "server": "s1", "counter": 2},
    {"kind": "channel_read", "reader": "m", "server": "s2", "counter": 1},  # another server may be behind
    {"kind": "entry", "counter": 1, "release": "a"}, {"kind": "entry", "counter": 2, "release": "b"},
    measurement(1, 0, "screen"), measurement(2, 1, "screen"),
    measurement(3, 0), measurement(4, 0, process=1), measurement(5, 0, process=2), measurement(6, 0, process=2, late=True),
    {"kind": "job", "id": "1", "state": "done", "reason": "", "configs": 2, "events": 4, "kinds": ["queued", "running", "stage", "done"],
     "winner": True},
    {"kind": "job", "id": "2", "state": "cancelled", "reason": "", "configs": 2, "events": 2, "kinds": ["queued", "cancelled"],
     "winner": False},
    {"kind": "spool", "agent": "a", "pending": 0, "refused": []},
    {"kind": "exit", "t": 8, "who": "s1", "status": -15, "early": True},
    {"kind": "exit", "t": 9, "who": "s1", "status": 0, "early": False},
    {"kind": "end"},
]


def broken(events):
    return [name for name, cases in checker.check(events).items() if cases]


def find(events, **members):
    return next(e for e in events if all(e.get(name) == value for name, value in members.items()))


def test_the_good_history_breaks_no_rule():
    assert broken(GOOD) == []


def test_a_job_may_fail_when_the_agents_that_measured_a_config_were_killed():
    assert broken([*GOOD, {"kind": "job", "id": "3", "state": "failed", "reason": "a config is given up", "configs": 2, "events": 3,
                           "kinds": ["queued", "poisoned", "failed"], "winner": False}]) == []


def test_a_job_may_fail_because_its_kernel_is_in_the_ledger_of_poison():
    job = {"kind": "job", "id": "3", "state": "failed", "configs": 2, "events": 2, "kinds": ["queued", "failed"], "winner": False}
    assert broken([*GOOD, {**job, "reason": "the kernel is poisoned on this hardware, by entry 1 of the ledger"}]) == []
    assert broken([*GOOD, {**job, "reason": "no config is correct"}]) == ["jobs_are_complete"]


def with_changed(members, **changed):
    events = copy.deepcopy(GOOD)
    find(events, **members).update(changed)
    return events


def without(**members):
    return [e for e in GOOD if e is not find(GOOD, **members)]


def test_a_history_in_which_nothing_happened_fails():
    assert broken([]) == ["something_happened"]


@pytest.mark.parametrize("rule, events", [
    ("acknowledged_results_are_stored", without(kind="measurement", seq=2)),
    ("acknowledged_results_are_stored", with_changed({"kind": "measurement", "seq": 2}, config=0, stage="halving")),
    ("acknowledged_results_are_stored", with_changed({"kind": "measurement", "seq": 2}, sample=0.2)),
    ("nothing_is_accepted_twice", [*GOOD, measurement(7, 0)]),
    ("nothing_is_accepted_twice", [*GOOD, measurement(6, 0, late=True)]),
    ("nothing_is_accepted_twice", [*GOOD, *[find(GOOD, kind="post", status=200)] * 3]),
    ("no_config_is_in_two_live_leases", [*GOOD, {"kind": "live", "t": 2, "leases": [["7", "1", "screen", 0, 0, [[0, 3]]],
                                                                                  ["8", "1", "screen", 0, 0, [[2, 4]]]]}]),
    ("jobs_move_along_their_machine", [*GOOD, change("jobs", "3", None, job("running"))]),
    ("jobs_move_along_their_machine", [*GOOD, change("jobs", "1", job("done", "final", 4), job("running", "final", 5))]),
    ("jobs_move_along_their_machine", [*GOOD, change("jobs", "1", job("done", "final", 4), job("done", "screen", 4))]),
    ("jobs_move_along_their_machine", [*GOOD, change("jobs", "1", job("done", "final", 4), job("done", "final", 3))]),
    ("jobs_move_along_their_machine", [*GOOD, change("jobs", "1", job("running", "final", 3), job("failed", "final", 4))]),
    ("jobs_move_along_their_machine", [*GOOD, change("jobs", "1", job("done", "final", 4), None)]),
    ("leases_move_along_their_machine", [*GOOD, change("leases", "8", None, lease("held", 1))]),
    ("leases_move_along_their_machine", [*GOOD, change("leases", "7", lease("done", 1), lease("held", 2))]),
    ("leases_move_along_their_machine", [*GOOD, change("leases", "7", lease("done", 1), lease("open", 2))]),
    ("leases_move_along_their_machine", [*GOOD, change("leases", "7", lease("held", 1), lease("done", 1))]),
    ("leases_move_along_their_machine", [*GOOD, change("leases", "8", None, lease("open", 0)),
                                         change("leases", "8", lease("open", 0), lease("held", 0))]),
    ("nothing_counts_at_another_epoch", [*GOOD, change("measurements", "7", {"epoch": 2}, {"epoch": 1, "seq": 8})]),
    ("channels_move_by_if_match_only", with_changed({"kind": "entry", "counter": 2}, counter=3)),
    ("channels_move_by_if_match_only", with_changed({"kind": "entry", "counter": 1}, release="b")),
    ("channels_move_by_if_match_only", [*GOOD, {"kind": "entry", "counter": 3, "release": "a"}]),
    ("channels_move_by_if_match_only", with_changed({"kind": "move", "status": 0}, status=412)),
    ("channels_move_by_if_match_only", [*GOOD, {"kind": "move", "if_match": 2, "release": "a", "status": 200, "counter": 3}]),
    ("versions_only_grow", [*GOOD, {"kind": "channel_read", "reader": "m", "server": "s1", "counter": 1}]),
    ("versions_only_grow", [*GOOD, change("channels", "1", {"counter": 2}, {"counter": 4})]),
    ("versions_only_grow", [*GOOD, change("channels", "1", {"counter": 2}, None)]),
    ("acknowledged_jobs_are_stored_and_end", [*GOOD, {"kind": "submit", "job": "3"}]),
    ("acknowledged_jobs_are_stored_and_end", [*GOOD, {"kind": "cancel", "job": "1"}]),
    ("acknowledged_jobs_are_stored_and_end", [*GOOD, {"kind": "job", "id": "4", "state": "running", "configs": 2, "events": 1,
                                                      "kinds": ["queued"], "winner": False}]),
    ("jobs_are_complete", with_changed({"kind": "job", "id": "1"}, configs=3)),
    ("jobs_are_complete", with_changed({"kind": "job", "id": "1"}, winner=False)),
    ("jobs_are_complete", without(kind="measurement", seq=4)),
    ("jobs_are_complete", with_changed({"kind": "job", "id": "1"}, events=5)),
    ("jobs_are_complete", with_changed({"kind": "job", "id": "1"}, kinds=["queued", "queued", "stage", "done"])),
    ("jobs_are_complete", with_changed({"kind": "job", "id": "1"}, kinds=["queued", "running", "stage", "stage"])),
    ("jobs_are_complete", with_changed({"kind": "job", "id": "2"}, state="failed", kinds=["queued", "failed"])),
    ("spools_drain", with_changed({"kind": "spool"}, pending=1)),
    ("spools_drain", with_changed({"kind": "spool"}, refused=["no such lease"])),
    ("programs_end_when_told_and_only_then", [*GOOD, {"kind": "died", "t": 3, "who": "s1", "status": -6}]),
    ("programs_end_when_told_and_only_then", with_changed({"kind": "exit"}, status=None)),
    ("programs_end_when_told_and_only_then", with_changed({"kind": "exit"}, status=-6)),
    ("programs_end_when_told_and_only_then", with_changed({"kind": "exit", "early": False}, status=-15)),
    ("no_answer_is_a_defect", [*GOOD, {"kind": "answer", "who": "a", "what": "POST /v1/leases", "status": 500, "detail": ""}]),
    ("something_happened", without(kind="end")),
])
def test_a_history_with_one_fault_breaks_its_rule(rule, events):
    assert rule in broken(events)


def test_every_rule_is_broken_by_a_history():
    marks = test_a_history_with_one_fault_breaks_its_rule.pytestmark
    assert {case[0] for case in marks[0].args[1]} == {rule.__name__ for rule in checker.RULES}
