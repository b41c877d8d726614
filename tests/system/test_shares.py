"""Which owner's jobs get the next lease: shares, weights, quotas, and the gain of waiting."""

import json

import harness
import pytest
from hands import ENVIRONMENT, LARGE, SMALL, UNHURRIED_SERVER, Hand, configs_of, hands, kernel, server  # noqa: F401 (fixtures)
from harness import make_token, wait_until, wavetune
from test_leases import runs_of


@pytest.fixture
def owners(server, kernel):  # noqa: F811
    """Submits jobs as one of the owners "many" and "few"; each has its own keys."""
    class Owners:
        tokens = {name: make_token(server.database, name, "submitter") for name in ("many", "few")}
        jobs = {name: [] for name in tokens}

        def submit(self, owner, n, space=LARGE, **more):
            return self.submit_all(owner, [(space, more)] * n)

        def submit_all(self, owner, each):
            """Of (space, members)."""
            first = len(self.jobs[owner]) + (1000 if owner == "few" else 1)
            body = {"jobs": [{"kernel": kernel, "key": {"n": first + i}, "space": space, "environment": ENVIRONMENT} | more
                             for i, (space, more) in enumerate(each)]}
            answer = server.request("POST", "/v1/jobs", body, token=self.tokens[owner])
            assert answer.status == 201, answer
            made = [job["job"] for job in answer.json["jobs"]]
            self.jobs[owner] += made
            return made

        def of(self, lease):
            return next(owner for owner, jobs in self.jobs.items() if lease["job"] in jobs)

        def pull(self, hand, n):
            """Pulls and completes n leases; returns their owners."""
            served = []
            for _ in range(n):
                lease = hand.pull().json
                served.append(self.of(lease))
                assert hand.post(lease).status == 200
            return served

    return Owners()


def refreshed(server):  # noqa: F811
    """Waits until the server has read the table of owners again."""
    before = runs_of(server, "owners_read")
    wait_until(lambda: runs_of(server, "owners_read") >= before + 2, 30, "the shares to be read")


def share(server, owner):  # noqa: F811
    return next(item for item in server.get("/v1/shares")["items"] if item["owner"] == owner)


def test_a_later_job_of_another_owner_ends_long_before_a_flood(server, hands, owners):  # noqa: F811
    hand = hands("a")
    owners.submit("many", 60)
    owners.pull(hand, 20)
    few = owners.submit("few", 2)
    served = []
    while any(server.get(f"/v1/jobs/{job}")["state"] != "done" for job in few):
        served += owners.pull(hand, 1)
    assert served.count("many") <= 2 * served.count("few"), served
    left = [server.get(f"/v1/jobs/{job}")["state"] for job in owners.jobs["many"]]
    assert left.count("done") < 30, "most of the flood is still to do"
    assert len(set(owners.pull(hand, 10))) == 1, "then the flood has the device alone"


def test_granted_leases_are_as_the_weights(server, hands, owners):  # noqa: F811
    hand = hands("a")
    for owner, weight in (("many", 3), ("few", 1)):
        assert server.request("PUT", f"/v1/shares/{owner}", {"weight": weight}).status == 200
        owners.submit(owner, 40)
    refreshed(server)
    served = owners.pull(hand, 80)
    assert 55 <= served.count("many") <= 65, served


def test_one_owner_is_served_by_priority_then_age(server, hands, owners):  # noqa: F811
    hand = hands("a")
    order = [owners.submit("many", 1, SMALL, priority=priority)[0] for priority in (0, 5, -3, 5, 0, 1000, -1000)]
    leases = [hand.pull().json for _ in order]
    assert [order.index(lease["job"]) for lease in leases] == [5, 1, 3, 0, 4, 2, 6]


def test_a_priority_that_has_waited_for_hours_gets_a_lease_now_and_then(server, hands, owners, start, postgres):  # noqa: F811
    owners.submit("many", 10, priority=5)
    old, = owners.submit("few", 1)
    postgres.sql(f"update jobs set created_at = now() - interval '5 hours 5 minutes' where id = {old}", conninfo=server.database)
    assert set(owners.pull(hands("a"), 3)) == {"many"}, "this server knows that it has just been submitted"
    other = start(harness.Server, server.database, options=UNHURRIED_SERVER)
    served = owners.pull(Hand(other, "b"), 12)
    assert served.count("few") == 1, "then it waits again"
    wait_until(lambda: postgres.sql("select now() - waiting_since between '4 hours 54 minutes' and '4 hours 56 minutes' from lease_queues "
                                    "where priority = 0", conninfo=server.database) == "t", 30, "the wait to be stored")
    third = start(harness.Server, server.database, options=UNHURRIED_SERVER)
    assert set(owners.pull(Hand(third, "c"), 5)) == {"many"}, "other servers read it"


def test_an_owner_whose_quota_is_used_waits_while_others_are_served(server, hands, owners):  # noqa: F811
    hand = hands("a")
    assert server.request("PUT", "/v1/shares/few", {"device_seconds_per_day": 0.01}).status == 200
    owners.submit("few", 3)
    assert hand.post(hand.pull().json, device_us=10000).status == 200
    refreshed(server)
    assert share(server, "few")["device_seconds_today"] == pytest.approx(0.08)
    assert hand.pull().status == 204, "its leases are open, but wait for tomorrow"
    job = owners.jobs["few"][-1]
    assert server.get(f"/v1/jobs/{job}")["waiting"] == ("the quota of few (0.01 device seconds a day) is used; it gets no leases until "
                                                        "midnight (UTC)")
    owners.submit("many", 1)
    assert set(owners.pull(hand, 3)) == {"many"}
    assert server.request("PUT", "/v1/shares/few", {}).status == 200
    refreshed(server)
    assert "few" in owners.pull(hand, 2)


def test_an_owner_with_many_priorities_is_served_in_their_order(server, hands, owners):  # noqa: F811
    """More queues than a survey reads of an owner, and than a transaction notes."""
    hand = hands("a")
    owners.submit_all("few", [(SMALL, {"priority": priority}) for priority in range(80)])
    refreshed(server)
    jobs = [hand.pull().json["job"] for _ in range(80)]
    assert jobs == owners.jobs["few"][::-1]
    assert hand.pull().status == 204


def test_a_device_gets_a_lease_of_a_queue_behind_many_that_it_may_not_have(server, hands, owners, postgres):  # noqa: F811
    """More queues than one statement tries."""
    hand = hands("a")
    owners.submit_all("few", [(SMALL, {"priority": priority}) for priority in range(20)])
    postgres.sql(f"update leases set avoid_agents = array['{hand.id}'] where priority > 0", conninfo=server.database)
    assert hand.pull().json["job"] == owners.jobs["few"][0]
    assert hand.pull().status == 204


def test_a_lost_lease_is_charged_for_what_was_not_charged_before(server, hands, owners, postgres):  # noqa: F811
    hand = hands("a")
    owners.submit("few", 1)
    lease = hand.pull().json
    assert hand.post(lease, configs_of(lease)[:1], done=False, device_us=60_000_000).status == 200
    refreshed(server)
    posted = share(server, "few")["device_seconds"]
    postgres.sql(f"update leases set granted_at = now() - interval '100 s' where id = {lease['lease']}", conninfo=server.database)
    Hand(server, "a", boot="b2", agent=hand.id)  # restarted: it lost the lease
    assert postgres.sql(f"select state from leases where id = {lease['lease']}", conninfo=server.database) == "open"
    refreshed(server)
    assert posted == pytest.approx(60, abs=1)
    assert share(server, "few")["device_seconds_today"] == pytest.approx(100, abs=3)


def test_shares_are_listed_set_and_in_the_audit(server, hands, owners):  # noqa: F811
    owners.submit("many", 2)
    hand, operator = hands("a"), make_token(server.database, "operator", "operator")
    owners.pull(hand, 1)
    done = wavetune(server, "shares", "set", "many", "--weight", "2.5", "--device-seconds-per-day", "3600", token=operator)
    assert "2.5" in done.stdout and "3600" in done.stdout
    refreshed(server)
    row = share(server, "many")
    assert (row["weight"], row["device_seconds_per_day"], row["open_jobs"]) == (2.5, 3600, 2)
    assert row["device_seconds_today"] == pytest.approx(0.008) and 0.1 < row["device_seconds"] < 0.11
    assert row["waiting_since"], "the second job has had no lease"
    assert json.loads(wavetune(server, "shares", "--json", token=owners.tokens["few"]).stdout)[0].keys() == row.keys()
    lines = wavetune(server, "shares", token=owners.tokens["few"]).stdout.splitlines()
    assert "waiting since" in lines[0] and any(line.startswith("many") and row["waiting_since"] in line for line in lines)
    entry = server.get("/v1/audit?action=set-share")["items"][0]
    assert (entry["token"], entry["object"]) == ("operator", "many")
    assert entry["detail"] == {"weight": 2.5, "device_seconds_per_day": 3600}


def test_a_share_that_cannot_be_set_is_refused(server, owners):  # noqa: F811
    answer = server.request("PUT", "/v1/shares/nobody", {"weight": 2})
    assert answer.status == 404 and 'no token "nobody"' in answer.json["detail"]
    assert "nobody" not in [item["owner"] for item in server.get("/v1/shares")["items"]]
    assert server.get("/v1/audit?action=set-share")["items"] == []
    for body in ({"weight": 0}, {"weight": 2000}, {"weight": None}, {"weight": "2"}, {"device_seconds_per_day": 0}, {"open_jobs": 1}):
        assert server.request("PUT", "/v1/shares/many", body).status == 422, body
    assert server.request("PUT", "/v1/shares/many", {"weight": 2}).status == 200, "before it has submitted anything"
    for number in ("0", "inf", "nan", "2x"):
        done = wavetune(server, "shares", "set", "many", "--weight", number, check=False)
        assert done.returncode == 2 and "give a number above 0" in done.stderr, number
    assert wavetune(server, "shares", "set", check=False).returncode == 2
