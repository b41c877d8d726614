"""Jobs: posts of several jobs, clients that post at the same time, the events of a job, and commits that fail."""

import contextlib
import re
import threading

import pytest
from hands import ENVIRONMENT, LARGE, SMALL, configs_of, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import wait_until


def body(kernel, n, **more):  # noqa: F811
    return {"kernel": kernel, "key": {"n": n}, "space": SMALL, "environment": ENVIRONMENT} | more


@contextlib.contextmanager
def commits_refused(postgres, database, table, condition):
    """Each commit fails of a transaction that updates a row of the table so that the condition holds."""
    postgres.sql("create function refuse() returns trigger language plpgsql as $$ begin raise 'refused by the test'; end $$; "
                 f"create constraint trigger refused after update on {table} deferrable initially deferred for each row "
                 f"when ({condition}) execute function refuse()", conninfo=database)
    yield
    postgres.sql(f"drop trigger refused on {table}; drop function refuse()", conninfo=database)


def counters(server, *names):  # noqa: F811
    metrics = server.request("GET", "/metrics").body.decode()
    return [int(re.search(rf"^wavetune_{name}_total (\d+)$", metrics, re.M)[1]) for name in names]


def test_equal_jobs_of_a_post_are_one_job_with_the_highest_priority(server, kernel):  # noqa: F811
    answer = server.request("POST", "/v1/jobs", {"jobs": [body(kernel, 1), body(kernel, 2), body(kernel, 1, priority=7)]})
    assert answer.status == 201, answer
    first, other, again = answer.json["jobs"]
    assert (first["job"], first["created"], again["created"]) == (again["job"], True, False)
    assert other["job"] != first["job"] and other["created"]
    assert [server.get(f"/v1/jobs/{job['job']}")["priority"] for job in (first, other)] == [7, 0]


def test_one_bad_job_refuses_the_whole_post(server, kernel):  # noqa: F811
    for wrong, pointer in ((body(kernel, 2, priority=2000), "/jobs/1/priority"),  # seen when it is read,
                           (body(kernel, 2, key={"m": 2}), "/jobs/1/key/m"),  # when it is compared with its kernel,
                           (body(kernel, 2, space={"parameters": {"A": [1]}, "conditions": ["A > 1"]}), "/jobs/1/space")):
        answer = server.request("POST", "/v1/jobs", {"jobs": [body(kernel, 1), wrong]})
        assert (answer.status, answer.json["pointer"]) == (422, pointer), answer
    assert server.get("/v1/jobs")["items"] == []


def test_the_list_of_jobs_is_read_by_pages_and_the_last_one_names_no_next(server, kernel):  # noqa: F811
    jobs = server.request("POST", "/v1/jobs", {"jobs": [body(kernel, n) for n in range(1, 5)]}).json["jobs"]
    ids = sorted((job["job"] for job in jobs), key=int, reverse=True)
    first = server.get("/v1/jobs?limit=2")
    last = server.get(f"/v1/jobs?limit=2&after={first['next']}")
    assert [job["job"] for job in first["items"] + last["items"]] == ids
    assert (first["next"], last["next"]) == (ids[1], None)


def test_clients_that_post_the_same_jobs_at_the_same_time_get_the_same_jobs(server, kernel):  # noqa: F811
    jobs = [body(kernel, n, space=LARGE) for n in range(1, 61)]
    answers = {}

    def post(client):
        answers[client] = server.request("POST", "/v1/jobs", {"jobs": jobs[::-1] if client % 2 else jobs}).json["jobs"]

    clients = [threading.Thread(target=post, args=(client,)) for client in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    ids = [[job["job"] for job in (answer[::-1] if client % 2 else answer)] for client, answer in answers.items()]
    assert len(answers) == 4 and all(each == ids[0] for each in ids) and len(set(ids[0])) == 60
    assert sum(job["created"] for answer in answers.values() for job in answer) == 60
    metrics = server.request("GET", "/metrics").body.decode()
    assert "wavetune_jobs_submitted_total 60\n" in metrics and "wavetune_jobs_known_total 180\n" in metrics


def test_every_change_of_a_job_is_an_event_and_events_are_numbered_from_one(server, hands, submit):  # noqa: F811
    job, hand = submit(SMALL), hands("a")
    hand.work()
    events = server.get(f"/v1/jobs/{job}/events")
    assert [event["event"] for event in events["items"]] == list(range(1, len(events["items"]) + 1))
    assert [event["kind"] for event in events["items"]] == ["queued", "running", "stage", "done"]
    assert events["items"][2]["detail"].items() >= {"stage": "final", "round": 0, "processes": 3}.items()
    assert events["items"][3]["detail"] == {"winner": server.get(f"/v1/jobs/{job}")["winner"]["config"]}
    assert events["next"] == "4"
    assert server.get(f"/v1/jobs/{job}/events?after=2&limit=1")["next"] == "3"
    for after in (4, 2**31 - 1, 2**31, 2**63 - 1):
        assert server.get(f"/v1/jobs/{job}/events?after={after}") == {"items": [], "next": str(after)}
    assert server.request("GET", "/v1/jobs/999/events").status == 404


def test_a_job_whose_last_lease_ended_unnoticed_is_advanced_by_the_housekeeper(
        server, hands, submit, postgres, database):  # noqa: F811
    """As after a crash between the last results of a stage and what follows from them."""
    job, other, hand = submit(SMALL), submit(SMALL, key={"n": 2}), hands("a")
    lease = hand.pull().json
    assert hand.post(lease, configs_of(lease)[:-1], done=False).status == 200
    postgres.sql(f"update leases set state = 'done', remaining = '{{}}' where job_id = {job}", conninfo=database)
    wait_until(lambda: server.get(f"/v1/jobs/{job}")["stage"] == "final", 30, "the final")
    assert server.get(f"/v1/jobs/{other}")["state"] == "queued"


def test_followers_of_several_jobs_get_the_events_of_their_own(server, submit):  # noqa: F811
    jobs = [submit(SMALL, key={"n": n}) for n in (1, 2, 3)]
    heard = {}

    def follow(job):
        heard[job] = server.get(f"/v1/jobs/{job}/events?after=1&wait=60")

    followers = {job: threading.Thread(target=follow, args=(job,)) for job in jobs}
    for follower in followers.values():
        follower.start()
    for job in (jobs[1], jobs[0], jobs[2]):
        assert job not in heard
        assert server.request("DELETE", f"/v1/jobs/{job}").status == 200
        followers[job].join()
        assert [event["kind"] for event in heard[job]["items"]] == ["cancelled"] and heard[job]["next"] == "2"


def test_a_listed_job_has_the_members_of_a_single_one_except_space_and_verdict(server, hands, submit):  # noqa: F811
    job, both = submit(SMALL, budget={"device_seconds": 60}, finals={"devices": 2}), (hands("a"), hands("b"))
    wait_until(lambda: [hand.work() for hand in both] and server.get(f"/v1/jobs/{job}")["state"] == "done", 30, "the job to be done")
    alone, listed = server.get(f"/v1/jobs/{job}"), server.get("/v1/jobs")["items"][0]
    assert alone.keys() - listed.keys() == {"space", "waiting", "handed_back", "flagged", "quarantined", "measurements_removed_at"}
    assert (alone["waiting"], alone["handed_back"], alone["flagged"], alone["quarantined"], alone["space"]) == (None, None, None, None, SMALL)
    assert alone["measurements_removed_at"] is None
    winner = alone.pop("winner")
    assert winner.keys() == {"config", "config_values", "agreement", "interpreted", "verdict", "resources"}
    assert listed.pop("winner") == {name: winner[name] for name in ("config", "config_values", "agreement", "interpreted")}
    assert {name: alone[name] for name in listed} == listed
    assert (listed["budget"], listed["finals"], listed["search"]) == ({"device_seconds": 60}, {"devices": 2}, None)
    assert listed["measured"] == sum(listed["outcomes"].values()) == 3 and listed["reason"] is None


def test_a_job_whose_failure_was_not_committed_runs_on_and_is_not_counted(server, hands, submit, postgres, database):  # noqa: F811
    job, hand = submit(SMALL), hands("a")
    lease, failure = hand.pull().json, {"configs": [0], "done": False, "outcomes": {0: "correctness"}, "baseline_failed": [0]}
    with commits_refused(postgres, database, "jobs", "new.state = 'failed'"):
        assert hand.post(lease, **failure).status == 200
        assert server.get(f"/v1/jobs/{job}")["state"] == "running"
        assert counters(server, "jobs_failed", "leases_cancelled") == [0, 0]
    assert hand.post(lease, **failure).status == 200
    assert server.get(f"/v1/jobs/{job}")["state"] == "failed"
    assert counters(server, "jobs_failed", "leases_cancelled") == [1, 1]


def test_a_cancellation_that_was_not_committed_changes_and_counts_nothing(server, submit, postgres, database):  # noqa: F811
    job = submit(SMALL)
    with commits_refused(postgres, database, "jobs", "new.state = 'cancelled'"):
        assert server.request("DELETE", f"/v1/jobs/{job}").status == 500
        assert server.get(f"/v1/jobs/{job}")["state"] == "queued"
        assert counters(server, "leases_cancelled") == [0]
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 200
    assert counters(server, "leases_cancelled") == [1]
    assert [event["kind"] for event in server.get(f"/v1/jobs/{job}/events")["items"]] == ["queued", "cancelled"]


def test_a_flag_that_was_not_committed_is_not_counted(server, hands, submit, postgres, database):  # noqa: F811
    space, hand = SMALL | {"default": {"A": 1}}, hands("a")
    earlier = submit(space)
    hand.work(ratios={0: 1.0, 1: 0.8, 2: 1.1}, rounds=12)
    later = submit(space, run="later")
    with commits_refused(postgres, database, "winners", "new.flagged is not null"):
        hand.work(ratios={0: 0.9, 1: 1.0, 2: 1.1}, rounds=12)
        assert server.get(f"/v1/jobs/{later}")["state"] == "running"
        assert counters(server, "jobs_done", "winners_flagged") == [1, 0]
    wait_until(lambda: server.get(f"/v1/jobs/{later}")["state"] == "done", 30, "the job to be done")
    assert server.get(f"/v1/jobs/{earlier}")["flagged"]["job"] == later
    assert counters(server, "jobs_done", "winners_flagged") == [2, 1]


def test_a_job_whose_end_meets_a_deadlock_ends_in_another_attempt(server, hands, submit, postgres, database):  # noqa: F811
    """It locks an earlier job after its own, other transactions lock jobs in the order of their ids."""
    space, hand = SMALL | {"default": {"A": 1}}, hands("a")
    earlier = submit(space)
    hand.work(ratios={0: 1.0, 1: 0.8, 2: 1.1}, rounds=12)
    later = submit(space, run="later")
    postgres.sql("create sequence once; create function deadlock() returns trigger language plpgsql as $$ begin "
                 "if nextval('once') = 1 then raise sqlstate '40P01'; end if; return new; end $$; create trigger deadlock "
                 "before update on winners for each row execute function deadlock()", conninfo=database)
    hand.work(ratios={0: 0.9, 1: 1.0, 2: 1.1}, rounds=12)
    assert server.get(f"/v1/jobs/{later}")["state"] == "done"
    assert server.get(f"/v1/jobs/{earlier}")["flagged"]["job"] == later
    assert postgres.sql("select last_value from once", conninfo=database) == "2"
    assert counters(server, "jobs_done", "winners_flagged") == [2, 1]


def test_jobs_are_found_by_a_text_over_all_pages(server, kernel):  # noqa: F811
    for first in range(1, 3001, 1000):
        posted = server.request("POST", "/v1/jobs", {"jobs": [body(kernel, first + n, run="odd" if n % 2 else "") for n in range(1000)]})
        assert posted.status == 201, posted
    found = server.get("/v1/jobs?contains=N%3D77&limit=1000")["items"]
    assert {job["key"]["n"] for job in found} == {77, *range(770, 780)}, "a key's members, in any case"
    odd = server.items("/v1/jobs?contains=test/leases&run=odd")
    assert len(odd) == 1500 and all(job["run"] == "odd" for job in odd)
    assert len(server.items("/v1/jobs?run=")) == 1500, "an empty run is a run"
    assert server.items("/v1/jobs?contains=n%3D77%25") == server.items("/v1/jobs?contains=_") == [], "no pattern"
    last = odd[0]["job"]
    assert last in [job["job"] for job in server.items(f"/v1/jobs?contains={last}")]
    name = odd[0]["submitted_by"]
    assert len(server.items(f"/v1/jobs?contains={name.upper()}")) == 3000


@pytest.mark.parametrize("value, says", [("abc", "gives a string"), (-1, "it must give 1 to"), (1.5, "float"), (None, "gives None"),
                                         (1e9, "float"), (0, "it must give 1 to"), (2**41, "it must give 1 to")])
def test_a_key_that_no_agent_could_launch_is_refused(server, hands, kernel, value, says):  # noqa: F811
    answer = server.request("POST", "/v1/jobs", {"jobs": [body(kernel, 1), body(kernel, value)]})
    assert (answer.status, answer.json["pointer"]) == (422, "/jobs/1/key/n"), answer
    assert 'extent 0 of argument "y", n: ' in answer.json["detail"] and says in answer.json["detail"], answer
    assert server.get("/v1/jobs")["items"] == []


def test_a_failed_job_with_such_a_key_is_not_tried_again(server, submit, postgres, database):  # noqa: F811
    """As servers accepted them."""
    job = submit(SMALL)
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 200
    postgres.sql(f"update jobs set key = '{{\"n\": \"abc\"}}' where id = {job}", conninfo=database)
    answer = server.request("POST", "/v1/jobs/retry", {"jobs": [job]})
    assert answer.status == 200 and "gives a string" in str(answer.json), answer
    assert len(server.get("/v1/jobs")["items"]) == 1
