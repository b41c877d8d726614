"""What people do from a terminal with many jobs and nodes: cancel, retry, list, watch and wait; and agents that leave the list."""

import json
import os
import re
import subprocess
import threading

import harness
import pytest
from hands import ENVIRONMENT, LARGE, SMALL, configs_of, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import BUILD, make_token, on_terminal, small_kernel, wait_until, wavetune

NOWHERE = json.dumps({"cpu": "gcc 1", "gpu": "nowhere", "arch": "x86_64", "compute_units": 4, "partition": ""})


@pytest.fixture
def submit_many(server, kernel):  # noqa: F811
    """Submits jobs of many keys, 1,000 a request; returns their ids."""

    def submit_many(n, **more):
        bodies = [{"kernel": kernel, "key": {"n": i}, "space": SMALL, "environment": ENVIRONMENT} | more for i in range(1, n + 1)]
        ids = []
        for start in range(0, n, 1000):
            answer = server.request("POST", "/v1/jobs", {"jobs": bodies[start:start + 1000]})
            assert answer.status == 201, answer
            ids += [job["job"] for job in answer.json["jobs"]]
        return sorted(ids, key=int)

    return submit_many


def fail(hand):
    """Works until nothing is left; no config is correct."""
    while (answer := hand.pull()).status == 200:
        lease = answer.json
        assert hand.post(lease, outcomes=dict.fromkeys(configs_of(lease), "runtime"), detail="no such device").status == 200


def state_of(server, job):  # noqa: F811
    return server.get(f"/v1/jobs/{job}")["state"]


def sql_number(postgres, server, query):  # noqa: F811
    return int(postgres.sql(query, conninfo=server.database))


# cancel


def test_one_command_cancels_thousands_of_jobs_of_a_run_and_no_other(server, submit_many, postgres):  # noqa: F811
    wrong, right = submit_many(2300, run="wrong"), submit_many(3, run="right")
    done = wavetune(server, "cancel", "--run", "wrong", "--yes")
    assert done.stdout == "2300 cancelled, 0 had ended already\n"
    assert {job["state"] for job in server.items("/v1/jobs?run=wrong")} == {"cancelled"}
    assert {job["job"] for job in server.items("/v1/jobs?state=queued")} == set(right)
    assert sql_number(postgres, server, "select count(*) from leases where state <> 'cancelled' and job_id in "
                                        "(select id from jobs where run = 'wrong')") == 0
    assert sql_number(postgres, server, "select count(*) from job_events where kind = 'cancelled'") == 2300
    note, = server.items("/v1/audit?action=cancel")  # one act, one row
    assert note["object"] == "jobs" and note["token"].startswith("admin")
    assert note["detail"] == {"jobs": 2300, "selected": {"run": "wrong", "up_to": wrong[-1]}}
    again = wavetune(server, "cancel", "--run", "wrong", "--yes")
    assert again.stdout == "0 cancelled, 2300 had ended already\n"


def test_jobs_are_selected_by_all_given_filters(server, kernel, submit_many, postgres):  # noqa: F811
    team = make_token(server.database, "team", "submitter")
    submit_many(2, tag="chat", run="a")
    body = {"kernel": kernel, "key": {"n": 9}, "space": SMALL, "environment": ENVIRONMENT, "tag": "chat", "run": "b"}
    own = server.request("POST", "/v1/jobs", body, token=team).json["job"]

    def cancelled(*options):
        out = json.loads(wavetune(server, "cancel", "--yes", "--json", *options).stdout)
        return out["cancelled"]

    assert cancelled("--tag", "chat", "--user", "nobody") == 0
    assert cancelled("--tag", "chat", "--kernel", "test/other") == 0
    assert cancelled("--tag", "chat", "--kernel", "test/leases", "--user", "team", "--any") == 1
    assert state_of(server, own) == "cancelled"
    assert cancelled("--kernel", kernel, "--run", "a") == 2


def test_the_audit_names_the_jobs_that_a_request_names(server, submit_many):  # noqa: F811
    jobs = submit_many(3)
    assert server.request("POST", "/v1/jobs/cancel", {"jobs": jobs[:2]}).json["cancelled"] == 2
    assert server.request("POST", "/v1/jobs/cancel", {"jobs": jobs[2:]}).json["cancelled"] == 1
    assert server.request("POST", "/v1/jobs/cancel", {"jobs": jobs}).json["cancelled"] == 0, "and adds no row"
    assert [(note["object"], note["detail"]) for note in server.items("/v1/audit?action=cancel")] == [
        (jobs[2], {}), ("jobs", {"jobs": 2, "selected": {"jobs": jobs[:2], "up_to": jobs[1]}})]
    again = {one["job"]: one["as"] for one in server.request("POST", "/v1/jobs/retry", {"jobs": jobs}).json["retried"]}
    retried, = server.items("/v1/audit?action=retry")
    assert (retried["object"], retried["detail"]["jobs"]) == ("jobs", 3)
    assert dict(zip(retried["detail"]["of"], retried["detail"]["as"])) == again


def test_others_jobs_are_cancelled_and_retried_by_an_operator_who_says_so(server, kernel):  # noqa: F811
    tokens = {name: make_token(server.database, name, role) for name, role in
              (("alice", "submitter"), ("bob", "submitter"), ("olga", "operator"))}

    def made(name, n):
        body = {"kernel": kernel, "key": {"n": n}, "space": SMALL, "environment": ENVIRONMENT, "run": "r"}
        return server.request("POST", "/v1/jobs", body, token=tokens[name]).json["job"]

    def run(name, *words):
        return wavetune(server, *words, "--yes", token=tokens[name], check=False)

    def delete(name, job, query=""):
        return server.request("DELETE", f"/v1/jobs/{job}{query}", token=tokens[name])

    alices, bobs = [made("alice", n) for n in (1, 2, 3)], made("bob", 4)
    for verb, n in (("cancel", 3), ("retry", 0)):
        for who, selected in (("bob", ("--run", "r")), ("bob", ("--user", "alice")), ("olga", ("--run", "r")), ("bob", alices)):
            done = run(who, verb, *selected)
            if n or who == "olga" and verb == "cancel":
                assert done.returncode == 4 and f'others than "{who}", such as ' in done.stderr and "(--any)" in done.stderr, done
        done = run("bob", verb, "--run", "r", "--any")
        assert done.returncode == 4 and 'need the role operator or admin; the token "bob"' in done.stderr, done
    assert delete("bob", alices[0]).status == delete("bob", alices[0], "?any=true").status == delete("olga", alices[0]).status == 403
    assert delete("olga", alices[0], "?any=maybe").status == 422 and delete("bob", "999").status == 404
    assert {state_of(server, job) for job in (*alices, bobs)} == {"queued"}, "nothing was done"

    assert run("bob", "cancel", "--run", "r", "--user", "bob").stdout == "1 cancelled, 0 had ended already\n"
    assert delete("alice", alices[0]).json["cancelled_by"] == "alice"
    assert delete("olga", alices[1], "?any=true").json["cancelled_by"] == "olga"
    assert run("olga", "cancel", "--run", "r", "--any").stdout == "1 cancelled, 3 had ended already\n"
    note = server.items("/v1/audit?action=cancel")[0]
    assert (note["token"], note["object"], note["detail"]["jobs"], note["detail"]["selected"]["any"]) == ("olga", "jobs", 1, True)

    for who, more in (("bob", ()), ("olga", ())):
        done = run(who, "retry", "--run", "r", *more)
        assert done.returncode == 4 and "(--any)" in done.stderr, done
    assert run("bob", "retry", bobs).stdout.endswith("1 tried again, 0 refused\n")
    assert run("olga", "retry", "--run", "r", "--any").stdout.endswith("3 tried again, 0 refused\n")


def test_a_job_of_the_servers_policy_is_nobodys_own(server, submit, postgres):  # noqa: F811
    job = submit(SMALL)
    postgres.sql(f"update jobs set submitted_by = '(server)', submitted_by_id = null where id = {job}", conninfo=server.database)
    done = wavetune(server, "cancel", job, check=False)
    assert done.returncode == 4 and "1 of these jobs were submitted by others" in done.stderr and "(server)" in done.stderr
    assert wavetune(server, "cancel", job, "--any").stdout == "1 cancelled, 0 had ended already\n"


def test_cancel_asks_before_more_than_one_job(server, submit_many):  # noqa: F811
    jobs = submit_many(2, run="r")
    refused = wavetune(server, "cancel", "--run", "r", check=False)
    assert (refused.returncode, refused.stderr) == (2, "wavetune: this would cancel 2 jobs; add --yes to do it\n")

    def answered(text):
        master, slave = os.openpty()
        done = subprocess.Popen([BUILD / "wavetune", "cancel", *jobs], stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
        os.write(master, text)
        out, err = done.communicate(timeout=600)
        os.close(master)
        os.close(slave)
        return done.returncode, out, err

    assert answered(b"n\n") == (1, "", "cancel 2 jobs? [y/N] wavetune: nothing was done\n")
    assert [state_of(server, job) for job in jobs] == ["queued", "queued"]
    assert answered(b"y\n") == (0, "2 cancelled, 0 had ended already\n", "cancel 2 jobs? [y/N] ")
    assert wavetune(server, "cancel", jobs[0]).stdout == "0 cancelled, 1 had ended already\n"


def test_a_held_lease_of_a_cancelled_job_is_not_renewed_and_its_job_stays_cancelled(server, hands, submit):  # noqa: F811
    job, hand = submit(LARGE), hands("a")
    lease = hand.pull().json
    assert state_of(server, job) == "running"
    assert wavetune(server, "cancel", job).stdout == "1 cancelled, 0 had ended already\n"
    assert hand.renew(lease).status == 409
    assert hand.post(lease).status == 409 and state_of(server, job) == "cancelled"


def test_a_follower_hears_that_its_job_was_cancelled_with_others(server, submit_many):  # noqa: F811
    jobs, heard = submit_many(3, run="r"), []
    follower = threading.Thread(target=lambda: heard.append(server.get(f"/v1/jobs/{jobs[2]}/events?after=1&wait=60")))
    follower.start()
    assert server.request("POST", "/v1/jobs/cancel", {"run": "r"}).json["cancelled"] == 3
    follower.join()
    assert [event["kind"] for event in heard[0]["items"]] == ["cancelled"]


@pytest.mark.parametrize("route", ("cancel", "retry", "progress"))
def test_a_wrong_selection_changes_nothing(server, submit_many, route):  # noqa: F811
    jobs, path = submit_many(2), f"/v1/jobs/{route}"
    for body, status, pointer, sentence in (
            ({}, 422, "", "state at least one of"),
            ({"jobs": []}, 422, "/jobs", ""),
            ({"jobs": ["one"]}, 422, "/jobs/0", "is not the id of a job"),
            ({"jobs": [jobs[0], "999"]}, 404, None, "there is no job 999"),
            ({"jobs": [jobs[0]], "state": "queued"}, 422, "/state", "state"),
            ({"kernel": "sha256:12"}, 422, None, ""),
            ({"jobs": [str(n) for n in range(1, 10002)]}, 422, "/jobs", "")):
        answer = server.request("POST", path, body)
        assert answer.status == status and sentence in answer.json["detail"], (body, answer)
        assert pointer is None or answer.json["pointer"] == pointer, answer
    assert [state_of(server, job) for job in jobs] == ["queued", "queued"]
    reader = make_token(server.database, f"reader-{route}", "reader")
    assert (server.request("POST", path, {"jobs": jobs}, token=reader).status == 403) == (route != "progress")


def test_selecting_with_nothing_or_with_a_word_is_a_usage_error(server):  # noqa: F811
    for command in ("cancel", "retry"):
        for arguments in ((), ("1", "--run", "r"), ("one",)):
            done = wavetune(server, command, *arguments, check=False)
            assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert wavetune(server, "cancel", "7", check=False).returncode == 4


# retry


def test_a_retried_job_has_the_identity_of_the_failed_one_which_keeps_its_evidence(server, hands, submit):  # noqa: F811
    job, hand = submit(SMALL, run="nightly", priority=4), hands("a")
    fail(hand)
    before = server.get(f"/v1/jobs/{job}")
    assert before["state"] == "failed" and before["reason"]
    out = wavetune(server, "retry", job).stdout
    again = re.match(rf"job {job}  again as job (\d+)  new\n1 tried again, 0 refused\n", out)[1]

    old, new = server.get(f"/v1/jobs/{job}"), server.get(f"/v1/jobs/{again}")
    assert (old["state"], old["reason"], old["run"]) == ("failed", before["reason"], f"nightly/retried-{job}")
    assert len(server.items(f"/v1/jobs/{job}/measurements")) == 3
    assert server.get(f"/v1/jobs/{job}/events")["items"][-1]["kind"] == "retried"
    assert (new["run"], new["priority"], new["retry_of"], new["measured"]) == ("nightly", 4, job, 0)
    same = ("kernel", "key", "space", "environment", "tag", "regime", "budget", "search", "finals", "seed")
    assert {name: new[name] for name in same} == {name: before[name] for name in same}

    assert wavetune(server, "retry", job).stdout.splitlines()[0] == f"job {job}  again as job {again}  known"
    body = {"kernel": new["kernel"], "key": {"n": 64}, "space": SMALL, "environment": ENVIRONMENT, "run": "nightly"}
    assert server.request("POST", "/v1/jobs", body).json["job"] == again
    hand.work()
    assert state_of(server, again) == "done" and state_of(server, job) == "failed"
    notes = server.items("/v1/audit?action=retry")
    assert [(note["object"], note["detail"]["of"]) for note in notes] == [(again, job)]


def test_filters_retry_what_failed_or_was_cancelled_once(server, hands, submit_many, submit):  # noqa: F811
    cancelled, other = submit_many(250, run="r"), submit(SMALL, key={"n": 5}, run="other")
    assert server.request("POST", "/v1/jobs/cancel", {"jobs": [*cancelled, other]}).json["cancelled"] == 251
    refused = wavetune(server, "retry", "--run", "r", check=False)
    assert (refused.returncode, refused.stderr) == (2, "wavetune: this would retry 250 jobs; add --yes to do it\n")
    assert "250 tried again, 0 refused" in wavetune(server, "retry", "--run", "r", "--yes").stdout
    assert {job["retry_of"] for job in server.items("/v1/jobs?run=r")} == set(cancelled)
    assert wavetune(server, "retry", "--run", "r", "--yes").stdout == "0 tried again, 0 refused\n"
    assert state_of(server, other) == "cancelled" and not server.items("/v1/jobs?run=other&state=queued")


def test_a_job_that_the_ledger_of_poison_has_is_refused_and_the_others_are_retried(server, hands, submit, postgres):  # noqa: F811
    jobs = [submit(SMALL, key={"n": n}, run="r") for n in (1, 2, 3)]
    server.request("POST", "/v1/jobs/cancel", {"run": "r"})
    postgres.sql(f"""insert into poison (scope, subject, device_class, environment_id, kernel, reason, evidence)
                     select 'kernel', sha256('x'), device_class, environment_id, kernel, 'three of its configs were lost', '[]'
                     from jobs where id = {jobs[0]}""", conninfo=server.database)
    answer = server.request("POST", "/v1/jobs/retry", {"jobs": jobs})
    assert answer.status == 200 and answer.json["retried"] == []
    assert [one["job"] for one in answer.json["refused"]] == jobs
    assert all("three of its configs were lost" in one["reason"] for one in answer.json["refused"])
    assert server.request("POST", "/v1/poison/1/release", {"reason": "a new driver"}).status == 200
    assert len(server.request("POST", "/v1/jobs/retry", {"jobs": jobs}).json["retried"]) == 3


def test_a_retried_job_counts_beside_the_campaign_of_its_successor(server, hands, submit):  # noqa: F811
    submit(SMALL, key={"n": 1}, run="r")
    server.request("POST", "/v1/jobs/cancel", {"run": "r"})
    assert len(server.request("POST", "/v1/jobs/retry", {"run": "r"}).json["retried"]) == 1

    def campaigns():
        return {row["run"]: (row["queued"], row["cancelled"]) for row in server.items("/v1/campaigns")}
    wait_until(lambda: campaigns() == {"r": (1, 0), "r/retried": (0, 1)}, 30, "both campaigns")


def test_retries_of_a_job_at_the_same_time_make_one_job(server, submit_many, postgres):  # noqa: F811
    jobs, answers = submit_many(40, run="r"), []
    server.request("POST", "/v1/jobs/cancel", {"run": "r"})
    clients = [threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/jobs/retry", {"jobs": jobs})))
               for _ in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert [answer.status for answer in answers] == [200] * 4, answers
    names = [sorted((one["job"], one["as"]) for one in answer.json["retried"]) for answer in answers]
    assert all(each == names[0] for each in names) and len(names[0]) == 40
    assert sum(one["created"] for answer in answers for one in answer.json["retried"]) == 40
    assert sql_number(postgres, server, "select count(*) from jobs") == 80


def test_a_job_that_cannot_be_retried_is_named_with_the_reason(server, hands, submit):  # noqa: F811
    poor = submit(SMALL, budget={"device_seconds": 1}, run="poor")
    server.request("DELETE", f"/v1/jobs/{poor}")
    done, hand = submit(SMALL), hands("a")
    hand.work(device_us=5_000_000)  # so that no final fits into the budget any more
    out = wavetune(server, "retry", done, poor, "--yes", check=False)
    assert out.returncode == 1 and out.stdout == "0 tried again, 2 refused\n"
    assert f"wavetune: job {done} is not tried again: it is done\n" in out.stderr
    assert f"wavetune: job {poor} is not tried again: " in out.stderr and "no final of this job fits" in out.stderr
    assert server.get(f"/v1/jobs/{poor}")["run"] == "poor" and len(server.items("/v1/jobs")) == 2


# jobs


def test_jobs_are_filtered_by_the_server_and_sorted(server, hands, submit_many, submit, kernel):  # noqa: F811
    team = make_token(server.database, "team", "submitter")
    jobs = submit_many(3, run="a")
    other = server.request("POST", "/v1/jobs", {"kernel": kernel, "key": {"n": 7}, "space": SMALL, "environment": ENVIRONMENT,
                                                "run": "b", "tag": "chat"}, token=team).json["job"]

    def listed(*options):
        return [job["job"] for job in json.loads(wavetune(server, "jobs", "--json", *options).stdout)]

    assert listed("--kernel", "test/leases") == [other, *jobs[::-1]] and listed("--kernel", "test/none") == []
    assert listed("--run", "a") == jobs[::-1] and listed("--user", "team") == [other] == listed("--tag", "chat")
    assert listed("--run", "a", "--limit", "2") == jobs[:0:-1]
    assert listed("--sort", "job", "--limit", "2") == jobs[:2]
    assert listed("--sort", "-by", "--limit", "1") == [other]
    keys = [job["key"]["n"] for job in json.loads(wavetune(server, "jobs", "--json", "--sort=-key", "--run", "a").stdout)]
    assert keys == [3, 2, 1]
    table = wavetune(server, "jobs", "--user", "team").stdout.splitlines()
    assert len(table) == 2 and table[0].split()[-1] == "by" and table[1].split()[-1] == "team"
    wrong = wavetune(server, "jobs", "--sort", "size", check=False)
    assert wrong.returncode == 2 and "the columns are job, kernel" in wrong.stderr
    assert wavetune(server, "jobs", "--kernel", "sha256:1", check=False).returncode == 4


def test_watching_prints_each_change_and_ends_with_the_jobs(server, hands, submit_many):  # noqa: F811
    jobs = submit_many(2, run="r")
    watch = subprocess.Popen([BUILD / "wavetune", "jobs", "--watch", "--run", "r"], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
    first = [watch.stdout.readline() for _ in jobs]
    assert all(line.endswith("  0 of 3  queued\n") for line in first)
    hands("a").work()
    out, _ = watch.communicate(timeout=600)
    assert watch.returncode == 0
    assert {(line.split()[1], line.split()[-1]) for line in out.splitlines()} >= {(job, "done") for job in jobs}


# waiting


def test_waiting_for_many_jobs_prints_all_and_names_those_without_a_winner(server, tmp_path, hands):  # noqa: F811
    folder = small_kernel(tmp_path / "kernel")
    hand = hands("a")
    arguments = [BUILD / "wavetune", "submit", folder, "--environment", json.dumps(ENVIRONMENT), "--wait", "--run", "r"]
    for n in (1001, 1002, 1003):
        arguments += ["--key", f"n={n}"]
    waiting = subprocess.Popen([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
    wait_until(lambda: len(server.items("/v1/jobs?run=r")) == 3, 60, "the jobs")
    jobs = sorted((job["job"] for job in server.items("/v1/jobs?run=r")), key=int)
    assert server.request("DELETE", f"/v1/jobs/{jobs[1]}").status == 200
    hand.work()
    out, err = waiting.communicate(timeout=600)
    assert waiting.returncode == 1, err
    printed = re.findall(r"^job (\d+)  new  ", out, re.M)
    assert sorted(printed, key=int) == jobs
    assert "1 of 3 jobs have no winner:" in err and re.search(rf'^  job {jobs[1]}  \S+ {{"n":\d+}}: cancelled$', err, re.M), err
    assert out.count("winner") >= 2


def test_waiting_shows_how_many_have_ended_the_rate_and_the_time_to_go(server, tmp_path, hands):  # noqa: F811
    folder, hand = small_kernel(tmp_path / "kernel"), hands("a")

    def counted():
        found = re.search(r'^wavetune_db_runs_total{statement="jobs_progress"} (\d+)$',
                          server.request("GET", "/metrics").body.decode(), re.M)
        return int(found[1]) if found else 0

    def work():
        """One job, and the others when the waiting command has seen that."""
        wait_until(lambda: len(server.items("/v1/jobs")) == 3 and counted() >= 2, 60, "the jobs to be counted")
        while not server.items("/v1/jobs?state=done"):
            lease = hand.pull().json
            assert hand.post(lease).status == 200
        seen = counted()
        wait_until(lambda: counted() >= seen + 2, 60, "the done job to be seen")
        hand.work()

    worker = threading.Thread(target=work)
    worker.start()
    keys = [word for n in (1, 2, 3) for word in ("--key", f"n={n}")]
    code, out, shown = on_terminal([BUILD / "wavetune", "submit", folder, *keys, "--environment", json.dumps(ENVIRONMENT), "--wait"],
                                   {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})
    worker.join()
    assert code == 0, shown
    assert "jobs [" in shown and re.search(r"\] 1/3  \d+ s  \S+ jobs a minute, about \d+ \S+ to go", shown), shown


def test_waiting_ends_with_its_own_code_after_the_timeout_and_the_jobs_go_on(server, tmp_path):  # noqa: F811
    folder = small_kernel(tmp_path / "kernel")
    for keys, sentence in ((("--key", "n=1"), "1 of 1 job had not ended after 1 s; it goes on"),
                           (("--key", "n=1", "--key", "n=2"), "2 of 2 jobs had not ended after 1 s; they go on")):
        done = wavetune(server, "submit", folder, *keys, "--environment", NOWHERE, "--wait", "--timeout", "1", check=False)
        assert done.returncode == 9 and sentence in done.stderr, done
    assert {job["state"] for job in server.items("/v1/jobs")} == {"queued"}


def test_waiting_with_json_prints_one_document_of_all_jobs(server, hands, submit_many):  # noqa: F811
    jobs = submit_many(3, run="r")
    server.request("POST", "/v1/jobs/cancel", {"jobs": jobs[:2]})
    hands("a").work()
    done = wavetune(server, "retry", *jobs[:2], "--yes", "--wait", "--timeout", "1", "--json", check=False)
    assert done.returncode == 9 and json.loads(done.stdout) == []
    hands("b").work()
    done = wavetune(server, "retry", *jobs[:2], "--yes", "--wait", "--json")
    assert [job["state"] for job in json.loads(done.stdout)] == ["done", "done"]


def test_progress_counts_jobs_and_configs(server, hands, submit, submit_many):  # noqa: F811
    jobs, hand = submit_many(4), hands("a")
    large = submit(LARGE, priority=5)
    lease = hand.pull().json
    assert hand.post(lease, configs_of(lease)[:2], done=False).status == 200
    server.request("DELETE", f"/v1/jobs/{jobs[0]}")
    found = server.request("POST", "/v1/jobs/progress", {"jobs": [large, *jobs, jobs[0]]}).json
    assert {name: found[name] for name in ("queued", "running", "done", "failed", "cancelled", "configs", "measured")} == {
        "queued": 3, "running": 1, "done": 0, "failed": 0, "cancelled": 1, "configs": 24 + 4 * 3, "measured": 2 + 3}
    assert found["ended"] == [{"job": jobs[0], "state": "cancelled", "configs": 3}]


# agents


def listed_agents(server, *options):  # noqa: F811
    return [agent["name"] for agent in json.loads(wavetune(server, "agents", "--json", *options).stdout)]


def test_an_agent_that_was_not_seen_for_a_week_leaves_the_list_and_its_evidence_stays(server, hands, submit, postgres):  # noqa: F811
    job, old = submit(SMALL), hands("old")
    hands("new")
    old.work()
    postgres.sql(f"update agents set last_seen = now() - interval '8 days' where id = '{old.id}'", conninfo=server.database)
    assert listed_agents(server) == ["new"] and sorted(listed_agents(server, "--all")) == ["new", "old"]
    assert len(server.items(f"/v1/jobs/{job}/measurements")) > 0 and state_of(server, job) == "done"
    assert "old" in wavetune(server, "show", job, "--devices").stdout


def test_a_removed_agent_leaves_the_list_loses_its_tokens_and_comes_back_when_it_is_seen(server, hands, postgres):  # noqa: F811
    hand = hands("node")
    make_token(server.database, "own", "agent")
    postgres.sql(f"update tokens set agent = '{hand.id}' where name = 'own'", conninfo=server.database)
    live = wavetune(server, "agents", "remove", hand.id, check=False)
    assert live.returncode == 4 and "is live, last seen at" in live.stderr
    postgres.sql(f"update agents set last_seen = now() - interval '1 day' where id = '{hand.id}'", conninfo=server.database)
    assert wavetune(server, "agents", "remove", hand.id).stdout == f"removed {hand.id}\n"
    assert listed_agents(server) == [] and listed_agents(server, "--all") == ["node"]
    assert re.search(r"^node +removed ", wavetune(server, "agents", "--all").stdout, re.M)
    shown = server.items("/v1/agents?all=true")[0]
    assert shown["removed_by"].startswith("admin") and shown["removed_at"]
    revoked = {token["name"]: token["revoked_at"] for token in server.items("/v1/tokens")}
    assert revoked["own"] and not any(at for name, at in revoked.items() if name.startswith("admin"))
    assert [note["object"] for note in server.items("/v1/audit?action=remove-agent")] == [hand.id]
    hands("node", agent=hand.id)
    assert listed_agents(server) == ["node"] and server.items("/v1/agents")[0]["removed_at"] is None


def test_agents_are_drained_resumed_and_removed_by_the_names_of_their_hosts(server, hands, postgres):  # noqa: F811
    """Of hosts with eight devices, as those of GPUs have."""
    eight = tuple(f"cpu{n}" for n in range(8))
    one, two = hands("node1", devices=eight), hands("node2", devices=eight)
    wait_until(lambda: wavetune(server, "agents", "-o", "csv").stdout.count("\n") == 17, 30, "a row for each device")

    def reasons():
        return {agent["agent"]: agent["drain_reason"] for agent in server.items("/v1/agents?all=true")}

    wavetune(server, "agents", "drain", "node2", "--reason", "a new fan")
    assert reasons() == {one.id: None, two.id: "a new fan"}
    assert f"all devices of agent {two.id} get leases again" in wavetune(server, "agents", "resume", "node2").stdout
    assert "cpu7 of agent" in wavetune(server, "agents", "drain", "node2", "--device", "cpu7", "--reason", "hot").stdout
    unknown = wavetune(server, "agents", "drain", "node3", "--reason", "x", check=False)
    assert unknown.returncode == 4 and 'no agent on a host "node3"' in unknown.stderr

    # Another agent of the host, as after its state was lost: commands mean the one that is at work, or that is gone.
    new = hands("node2", devices=eight)
    for verb in (("drain", "node2", "--reason", "x"), ("remove", "node2")):
        several = wavetune(server, "agents", *verb, check=False)
        assert several.returncode == 2 and "2 agents are on the host node2; name one by its id" in several.stderr, several
        assert f"  {two.id}  live, last seen at 2" in several.stderr and new.id in several.stderr
    postgres.sql(f"update agents set last_seen = now() - interval '1 day' where id = '{two.id}'", conninfo=server.database)
    wavetune(server, "agents", "drain", "node2", "--reason", "x")
    assert reasons() == {one.id: None, two.id: None, new.id: "x"}
    assert json.loads(wavetune(server, "agents", "remove", "node2", "--json").stdout) == {"removed": two.id}
    alone = wavetune(server, "agents", "remove", "node2", check=False)
    assert alone.returncode == 4 and "is live, last seen at" in alone.stderr, "the removed one is not meant any more"


def test_removing_what_is_no_agent_and_without_the_role_is_refused(server, hands):  # noqa: F811
    assert wavetune(server, "agents", "remove", "0" * 32, check=False).returncode == 4
    submitter = make_token(server.database, "ci", "submitter")
    assert server.request("DELETE", f"/v1/agents/{'0' * 32}", token=submitter).status == 403
    assert server.request("GET", "/v1/agents?all=maybe").status == 422
