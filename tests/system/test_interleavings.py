"""Two database sessions change one row in chosen orders: a statement that waited for a lock must act on the row as it is after
the wait. A third session locks the lease's row, so that the order is certain."""

import json
import subprocess
import threading

import harness
import pytest
from harness import wait_until

ENVIRONMENT = {"cpu": "gcc 1", "gpu": "Test CPU", "arch": "x86_64", "compute_units": 4, "partition": ""}


class Session:
    """A psql that keeps its transaction open between statements."""

    def __init__(self, database):
        self.process = subprocess.Popen([str(harness.postgres_bin() / "psql"), database, "-XAtq", "-v", "ON_ERROR_STOP=1"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, statement):
        self.process.stdin.write(statement + ";\n\\echo done\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline()).strip() != "done":
            assert line, lines
            lines.append(line.strip())
        return lines

    def close(self):
        self.process.stdin.close()
        self.process.wait(300)


@pytest.fixture
def server(start, database):
    return start(harness.Server, database, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))


@pytest.fixture
def session(database):
    session = Session(database)
    yield session
    session.close()


class Bench:
    """A job with leases, one of them held by an agent played here, and ways to post in the background."""

    def __init__(self, postgres, database, server):
        self.postgres, self.database, self.server = postgres, database, server
        answer = server.request("POST", "/v1/agents", {
            "boot": "b", "name": "hand", "version": "0.1.0",
            "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]})
        self.agent = answer.json["agent"]
        submitted = harness.wavetune(server, "submit", harness.QUICK, "--key", "n=100003", "--json", "--environment",
                                     json.dumps(ENVIRONMENT))
        self.job = json.loads(submitted.stdout)[0]["job"]
        self.lease = self.pull("n1").json
        self.configs = [c for first, count in self.lease["configs"] for c in range(first, first + count)]

    def pull(self, nonce):
        return self.server.request("POST", "/v1/leases", {"agent": self.agent, "device": "cpu0", "nonce": nonce, "wait": 0})

    def post(self, configs, done=False, time_us=100.0, server=None):
        measurements = [{"seq": 1 + i, "config": config, "outcome": "correct", "timer": "test", "samples_us": [time_us] * 3,
                         "baseline_us": [100.0] * 3} for i, config in enumerate(configs)]
        return (server or self.server).request("POST", f"/v1/leases/{self.lease['lease']}/results",
                                               {"epoch": self.lease["epoch"], "measurements": measurements, "done": done})

    def renew(self):
        return self.server.request("POST", f"/v1/leases/{self.lease['lease']}/renew",
                                   {"epoch": self.lease["epoch"], "config": None})

    def sql(self, text):
        return self.postgres.sql(text, conninfo=self.database)

    def wait_blocked(self, sessions=1):
        wait_until(lambda: int(self.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
                                        "and datname = current_database()")) >= sessions, 20, "a session to wait for the lock")


@pytest.fixture
def bench(postgres, database, server):
    return Bench(postgres, database, server)


def behind_lock(bench, session, change, *calls):
    """Starts the calls while the lease's row is locked, makes the change when all of them wait, and returns their answers."""
    session.run("begin")
    session.run(f"select 1 from leases where id = {bench.lease['lease']} for update")
    answers = [None] * len(calls)

    def ask(index, call):
        answers[index] = call()

    threads = [threading.Thread(target=ask, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    bench.wait_blocked(len(calls))
    if change:
        session.run(change.format(lease=bench.lease["lease"], job=bench.job))
    session.run("commit")
    for thread in threads:
        thread.join(300)
    return answers


def counted(bench):
    return int(bench.sql("select count(*) from measurements where not late"))


EXPIRE = "update leases set state = 'open', current_config = null where id = {lease}"
REGRANT = "update leases set epoch = epoch + 1, nonce = 'other', agent = repeat('f', 32) where id = {lease}"
CANCEL = "update leases set state = 'cancelled' where id = {lease}"


@pytest.mark.parametrize("change", [EXPIRE, REGRANT, CANCEL], ids=["expired", "granted anew", "cancelled"])
def test_results_that_waited_while_the_lease_was_taken_away_are_evidence_only(bench, session, change):
    answer, = behind_lock(bench, session, change, lambda: bench.post(bench.configs, done=True))
    assert answer.status == 409
    assert counted(bench) == 0
    assert int(bench.sql("select count(*) from measurements where late")) == len(bench.configs)
    assert bench.sql(f"select remaining = configs from leases where id = {bench.lease['lease']}") == "t"


@pytest.mark.parametrize("change", [EXPIRE, REGRANT, CANCEL], ids=["expired", "granted anew", "cancelled"])
def test_a_renewal_that_waited_while_the_lease_was_taken_away_is_refused(bench, session, change):
    before = bench.sql(f"select expires_at from leases where id = {bench.lease['lease']}")
    answer, = behind_lock(bench, session, change, bench.renew)
    assert answer.status == 409
    assert bench.sql(f"select expires_at from leases where id = {bench.lease['lease']}") == before


def test_the_same_results_at_two_servers_at_once_are_stored_once(bench, session, start, database):
    other = start(harness.Server, database, options=harness.UNHURRIED)
    answers = behind_lock(bench, session, None, lambda: bench.post(bench.configs, done=True),
                          lambda: bench.post(bench.configs, done=True, server=other))
    assert [a.status for a in answers] == [200, 200]
    assert sorted((a.json["accepted"], a.json["known"]) for a in answers) == [(0, len(bench.configs)), (len(bench.configs), 0)]
    assert counted(bench) == len(bench.configs)


def test_the_same_seqs_with_two_bodies_at_once_store_one_of_them_whole(bench, session, start, database):
    other = start(harness.Server, database, options=harness.UNHURRIED)
    answers = behind_lock(bench, session, None, lambda: bench.post(bench.configs, done=True),
                          lambda: bench.post(bench.configs[:3], time_us=55.0, server=other))
    assert sorted(a.status for a in answers) == [200, 409]
    whole = len(bench.configs) if answers[0].status == 200 else 3
    assert int(bench.sql("select count(*) from measurements")) == whole
    assert int(bench.sql("select count(distinct samples_us) from measurements")) == 1


def test_disjoint_results_of_one_lease_at_two_servers_both_count(bench, session, start, database):
    other = start(harness.Server, database, options=harness.UNHURRIED)
    first, second = bench.configs[:2], bench.configs[2:4]

    def post_second():
        body = {"epoch": bench.lease["epoch"], "measurements": [
            {"seq": 100 + c, "config": c, "outcome": "compile", "detail": "no"} for c in second], "done": False}
        return other.request("POST", f"/v1/leases/{bench.lease['lease']}/results", body)

    answers = behind_lock(bench, session, None, lambda: bench.post(first), post_second)
    assert [a.json["accepted"] for a in answers] == [2, 2]
    assert counted(bench) == 4
    assert bench.sql(f"select configs - remaining = '{{[{first[0]},{second[-1] + 1})}}'::int8multirange from leases "
                     f"where id = {bench.lease['lease']}") == "t"


def test_a_grant_passes_over_a_lease_that_another_session_has_locked(bench, session):
    session.run("begin")
    locked = session.run("select id from leases where state = 'open' order by id limit 1 for update")
    given = [bench.pull(f"o{i}") for i in range(40)]
    assert locked[0] not in [a.json["lease"] for a in given if a.status == 200]
    assert given[-1].status == 204
    session.run("commit")
    assert bench.pull("last").json["lease"] == locked[0]


def test_results_that_waited_for_a_renewal_count(bench, session):
    answer, = behind_lock(bench, session, "update leases set expires_at = now() + interval '60 s' where id = {lease}",
                          lambda: bench.post(bench.configs[:2]))
    assert answer.json == {"accepted": 2, "late": 0, "known": 0, "state": "held"}
    assert counted(bench) == 2


def test_cancelling_while_results_wait_leaves_nothing_open(bench, session):
    cancel = bench.server.request
    answers = behind_lock(bench, session, None, lambda: bench.post(bench.configs, done=True),
                          lambda: cancel("DELETE", f"/v1/jobs/{bench.job}"))
    assert answers[0].status in (200, 409)
    assert answers[1].json["state"] == "cancelled"
    assert bench.sql("select count(*) from leases where state in ('open', 'held')") == "0"
    assert bench.pull("after").status == 204


def test_posts_that_conflict_with_other_connections_are_all_accepted_in_the_end(postgres, database, start):
    options = ("--workers", "1", *harness.UNHURRIED, *harness.LEASES_OF_8)
    bench = Bench(postgres, database, start(harness.Server, database, options=options))
    harness.wavetune(bench.server, "submit", harness.QUICK, "--key", "n=7", "--environment", json.dumps(ENVIRONMENT))
    leases = [bench.pull(f"m{n}").json for n in range(10)]
    first, others = Session(database), Session(database)
    first.run("begin")
    first.run(f"select 1 from leases where id = {bench.lease['lease']} for update")
    others.run("begin")
    others.run(f"update leases set posts = posts + 1 where id in ({','.join(lease['lease'] for lease in leases)})")
    answers = []

    def post(lease):
        measurements = [{"seq": 1, "config": lease["configs"][0][0], "outcome": "compile"}]
        answers.append(bench.server.request("POST", f"/v1/leases/{lease['lease']}/results",
                                            {"epoch": lease["epoch"], "measurements": measurements}))

    threads = [threading.Thread(target=post, args=[bench.lease])]  # keeps the worker busy while the others come together
    threads[0].start()
    bench.wait_blocked()
    for lease in leases:
        threads.append(threading.Thread(target=post, args=[lease]))
        threads[-1].start()
    wait_until(lambda: b"wavetune_queue_length 10\n" in bench.server.request("GET", "/metrics").body, 20, "posts to wait")
    first.run("commit")
    wait_until(lambda: len(answers) == 1, 20, "the first post to be answered")
    bench.wait_blocked()
    others.run("commit")
    for thread in threads:
        thread.join(300)
    first.close()
    others.close()
    assert [answer.status for answer in answers] == [200] * 11, answers
    assert counted(bench) == 11


def test_posts_of_many_jobs_lock_the_jobs_in_the_order_of_their_ids(postgres, database, start):
    options = ("--workers", "1", *harness.UNHURRIED)
    bench = Bench(postgres, database, start(harness.Server, database, options=options))
    for n in range(8):
        harness.wavetune(bench.server, "submit", harness.QUICK, "--key", f"n={n + 1}", "--environment", json.dumps(ENVIRONMENT))
    leases = [bench.pull(f"m{n}").json for n in range(8)]
    jobs = sorted(int(lease["job"]) for lease in leases)
    assert len(set(jobs)) == 8
    first, job = Session(database), Session(database)
    first.run("begin")
    first.run(f"select 1 from leases where id = {bench.lease['lease']} for update")
    job.run("begin")
    job.run(f"select 1 from jobs where id = {jobs[0]} for update")
    answers = []

    def post(lease):
        measurements = [{"seq": 1, "config": lease["configs"][0][0], "outcome": "correct", "timer": "test",
                         "samples_us": [90.0] * 3, "baseline_us": [100.0] * 3}]
        answers.append(bench.server.request("POST", f"/v1/leases/{lease['lease']}/results",
                                            {"epoch": lease["epoch"], "measurements": measurements}))

    threads = [threading.Thread(target=post, args=[bench.lease])]  # keeps the worker busy while the others come together
    threads[0].start()
    bench.wait_blocked()
    for lease in leases:
        threads.append(threading.Thread(target=post, args=[lease]))
        threads[-1].start()
    wait_until(lambda: b"wavetune_queue_length 8\n" in bench.server.request("GET", "/metrics").body, 20, "posts to wait")
    first.run("commit")
    wait_until(lambda: len(answers) >= 1, 20, "the first post to be answered")
    bench.wait_blocked()
    free = bench.sql(f"select id from jobs where id >= {jobs[0]} order by id for update skip locked")
    job.run("commit")
    for thread in threads:
        thread.join(300)
    first.close()
    job.close()
    assert free.split() == [str(other) for other in jobs[1:]], "a session that waits for a job has locked no later one"
    assert [answer.status for answer in answers] == [200] * 9, answers


def test_an_agent_that_comes_back_locks_the_jobs_of_its_leases_in_the_order_of_their_ids(postgres, database, start):
    bench = Bench(postgres, database, start(harness.Server, database, options=harness.UNHURRIED))
    for n in range(8):
        harness.wavetune(bench.server, "submit", harness.QUICK, "--key", f"n={n + 1}", "--environment", json.dumps(ENVIRONMENT))
    jobs = [bench.job, *(bench.pull(f"m{n}").json["job"] for n in range(8))]
    job, answers = Session(database), []
    job.run("begin")
    job.run(f"select 1 from jobs where id = {bench.job} for update")
    body = {"agent": bench.agent, "boot": "another", "name": "hand", "version": "0.1.0", "devices": [
        {"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]}
    thread = threading.Thread(target=lambda: answers.append(bench.server.request("POST", "/v1/agents", body)))
    thread.start()
    bench.wait_blocked()
    free = bench.sql("select id from jobs order by id for update skip locked")
    job.run("commit")
    thread.join(300)
    job.close()
    assert free.split() == sorted(jobs, key=int)[1:]
    assert answers[0].status == 200 and bench.sql("select count(*) from leases where state = 'open'") == "9"


SPLIT = ("update leases set remaining = remaining - '{{[4,100)}}', is_split = true where id = {lease};"
         "insert into leases (job_id, stage, round, process, configs, remaining, device_class, priority) select job_id, stage, "
         "round, process, '{{[4,8)}}', '{{[4,8)}}', device_class, priority from leases where id = {lease}")


def test_results_that_waited_while_the_lease_was_split_count_for_the_remaining_configs(bench, session):
    assert bench.configs == [0, 1, 2, 3, 4, 6, 7, 8]
    answer, = behind_lock(bench, session, SPLIT, lambda: bench.post(bench.configs, done=True))
    assert answer.json == {"accepted": 8, "late": 4, "known": 0, "state": "done"}
    assert counted(bench) == 4


def test_a_renewal_that_waited_while_the_lease_was_split_returns_the_remaining_configs(bench, session):
    answer, = behind_lock(bench, session, SPLIT, bench.renew)
    assert answer.json["configs"] == [[0, 4]]


class Tails(Bench):
    """A lease that has long to go yet, and idle devices."""

    def __init__(self, postgres, database, server):
        super().__init__(postgres, database, server)
        self.idle = [self.enrol(f"idle{n}") for n in range(2)]
        self.sql("update leases set config_us = 1000000, granted_at = now() - interval '10 s' where state = 'held'")

    def enrol(self, name):
        return self.server.request("POST", "/v1/agents", {
            "boot": "b", "name": name, "version": "0.1.0",
            "devices": [{"device": "cpu0", "backend": "cpu", "environment": ENVIRONMENT, "facts": {}}]}).json["agent"]

    def ask(self, agent, server=None, wait=0):
        return (server or self.server).request("POST", "/v1/leases",
                                               {"agent": agent, "device": "cpu0", "nonce": "rest", "wait": wait})


@pytest.fixture
def splits(postgres, database, start):
    return Tails(postgres, database, start(harness.Server, database, options=harness.UNHURRIED))


def test_a_lease_whose_row_is_locked_is_not_split_and_not_waited_for(splits, session):
    session.run("begin")
    session.run(f"select 1 from leases where id = {splits.lease['lease']} for update")
    assert splits.ask(splits.idle[0]).status == 204
    session.run("commit")
    assert splits.ask(splits.idle[0]).status == 200


def test_a_job_that_is_ending_is_not_split(splits, session):
    session.run("begin")
    session.run(f"update jobs set state = 'cancelled', finished_at = now() where id = {splits.job}")
    assert splits.ask(splits.idle[0]).status == 204
    session.run("commit")
    assert splits.ask(splits.idle[0]).status == 204
    assert splits.sql("select count(*) from leases where state = 'open'") == "0"


def test_idle_devices_at_two_servers_share_a_lease_without_overlap(splits, start, database):
    other = start(harness.Server, database, options=harness.UNHURRIED)
    answers = [None, None]

    def ask(index, server):
        answers[index] = splits.ask(splits.idle[index], server, wait=60)

    threads = [threading.Thread(target=ask, args=pair) for pair in enumerate((splits.server, other))]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(answers) or splits.sql("select count(*) from leases where state = 'held'") == "3"
               or splits.sql("update leases set granted_at = now() - interval '10 s' where state = 'held'"), 20, "both to have one")
    for thread in threads:
        thread.join(300)
    assert [answer.status for answer in answers] == [200, 200]
    overlap = splits.sql("select count(*) from leases a join leases b on a.id < b.id and a.remaining && b.remaining")
    left = splits.sql("select sum(upper(r) - lower(r)) from leases, unnest(remaining) r where state in ('open', 'held')")
    assert (overlap, left) == ("0", "49")
