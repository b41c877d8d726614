"""Sessions that forgot to end their transaction: what grants read meanwhile, how such sessions are named, and that they are ended."""

import contextlib
import subprocess

import harness
import pytest
from hands import ENVIRONMENT, Hand, hands, kernel, register, server, submit  # noqa: F401 (fixtures)
from harness import wait_until
from test_leases import metric
from test_plans import EXPLAIN, plans_since

HOLDS = "begin isolation level repeatable read; select 1"
NAMED = "has been idle in a transaction"


class Session:
    """A psql that leaves its transaction open; `application` is its name."""

    def __init__(self, database, statements, application="forgetful"):
        self.process = subprocess.Popen(
            [str(harness.postgres_bin() / "psql"), f"{database} application_name={application}", "-XAtq"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.pid = self.run("select pg_backend_pid()")[0]
        self.run(statements)

    def run(self, statement):
        """Its lines of output."""
        lines = []
        self.process.stdin.write(statement + ";\n\\echo done\n")
        self.process.stdin.flush()
        while (line := self.process.stdout.readline().strip()) not in ("done", ""):
            lines.append(line)
        return lines

    def is_open(self):
        return self.run("select 'still here'") == ["still here"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(300)


@pytest.fixture
def session(database):
    """Opens sessions."""
    with contextlib.ExitStack() as sessions:
        def open_session(*arguments, **more):
            opened = Session(database, *arguments, **more)
            sessions.callback(opened.close)
            return opened

        yield open_session


def warnings(server, token="admin"):  # noqa: F811
    answer = server.request("GET", "/readyz", token=token)
    assert answer.status == 200, answer
    return answer.json.get("warnings", [])


def test_a_session_that_forgot_its_transaction_is_named_to_operators(server, session):  # noqa: F811
    reader = harness.make_token(server.database, "reader", "reader")
    for token in ("admin", reader):
        assert server.request("GET", "/v1/jobs", token=token).status == 200
    assert warnings(server) == []
    forgotten = session(HOLDS)
    wait_until(lambda: warnings(server), 30, "the warning")
    assert f"pid {forgotten.pid} (application \"forgetful\"" in warnings(server)[0] and NAMED in warnings(server)[0]
    assert warnings(server, reader) == warnings(server, None) == []
    assert metric(server, "wavetune_database_idle_transaction_seconds") >= 10
    assert f"pid={forgotten.pid} application=forgetful" in server.messages
    assert forgotten.is_open(), "without the option none is ended"
    forgotten.run("commit")
    wait_until(lambda: not warnings(server), 30, "the end of the warning")
    assert metric(server, "wavetune_database_idle_transaction_seconds") == 0


def test_metrics_have_dead_rows_and_the_age_of_the_oldest_transaction(server, session, postgres):  # noqa: F811
    session(HOLDS)
    hand = Hand(server, "a")
    postgres.sql("; ".join(["update agents set last_seen = now()"] * 50), conninfo=server.database)
    for _ in range(60):  # each its own transaction
        assert hand.beat().status == 200
        Hand(server, "a", agent=hand.id)
    wait_until(lambda: metric(server, "wavetune_database_xmin_age") >= 60, 30, "the age")
    wait_until(lambda: metric(server, 'wavetune_database_dead_rows{table="agents"}') >= 50, 60, "the dead rows")


def test_end_idle_transactions_ends_those_that_keep_dead_rows_and_no_other(start, database, session):
    server = start(harness.Server, database, options=("--end-idle-transactions", "1"))  # noqa: F811
    harmless = session("begin; select 1")  # without a snapshot between its statements
    working = session("select 1")
    forgotten, other = session(HOLDS), session("begin; select pg_current_xact_id()", application="writer")
    working.process.stdin.write("begin isolation level repeatable read; select pg_sleep(600);\n")
    working.process.stdin.flush()

    wait_until(lambda: server.messages.count("ended session") >= 2, 60, "both to be ended")
    for ended, application in ((forgotten, "forgetful"), (other, "writer")):
        assert f"ended session pid={ended.pid} application={application}" in server.messages
    assert any("terminating connection" in line for line in forgotten.run("select 2")), "it learns why"
    assert harmless.is_open()
    wait = ["select count(*) from pg_stat_activity where state = 'active' and query like '%pg_sleep(600)%'"]
    assert int(harness.subprocess.run([str(harness.postgres_bin() / "psql"), database, "-XAtqc", *wait], check=True,
                                      capture_output=True, text=True).stdout) == 2, "one that works, and this query"
    assert server.messages.count("ended session") == 2
    assert server.request("GET", "/v1/jobs").status == 200
    working.process.kill()


def test_a_session_that_the_servers_role_may_not_end_is_reported(start, database, session, postgres):
    """A role without pg_read_all_stats does not even see what other roles' sessions do."""
    postgres.sql("do $$ begin create role limited login; exception when duplicate_object then null; end $$; "
                 "grant pg_read_all_stats to limited; grant all on all tables in schema public to limited; "
                 "grant all on all sequences in schema public to limited", conninfo=database)
    limited = database.replace("user=postgres", "user=limited")
    session(HOLDS)
    program = start(harness.Program, [harness.BUILD / "wavetune-server", "serve", "--port", "0", "--database", limited,
                                      "--end-idle-transactions", "1"])
    wait_until(lambda: "cannot end session" in program.messages, 60, "the refusal")
    assert "application=forgetful" in program.messages and "pg_signal_backend" in program.messages


def blocks_read(plan, index="leases_open"):
    """How many blocks a statement's scans of an index read."""
    own = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] if plan.get("Index Name") == index else 0
    return own + sum(blocks_read(below, index) for below in plan.get("Plans", ()))


def explained(database, postgres):
    """Has PostgreSQL log the plans of a database's statements."""
    name = database.split("dbname=")[1]
    postgres.sql("; ".join(f"alter database {name} set {setting} = '{value}'" for setting, value in EXPLAIN.items()),
                 database="postgres")


def submit_many(server):  # noqa: F811
    """A job of 700 leases."""
    answer = server.request("POST", "/v1/jobs", {"kernel": register(server), "key": {"n": 1}, "environment": ENVIRONMENT,
                                                 "space": {"parameters": {"A": list(range(700 * 8))}}})
    assert answer.status == 201, answer


def test_grants_do_not_pass_over_the_leases_that_were_granted_before(start, database, postgres, session):
    explained(database, postgres)
    server = start(harness.Server, database, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))  # noqa: F811
    submit_many(server)
    hand = Hand(server, "a")
    session(HOLDS)
    for _ in range(600):
        assert hand.post(hand.pull().json).status == 200
    log = postgres.folder / "log"
    blocks = [blocks_read(plan) for name, plan in plans_since(log, 0) if name == "lease_take"]
    assert len(blocks) == 600
    early, late = (sorted(some)[len(some) // 2] for some in (blocks[20:120], blocks[500:]))
    assert 0 < late <= early + 10, (early, late)


def test_the_search_for_expired_leases_does_not_pass_over_those_that_ended(start, database, postgres, session):
    explained(database, postgres)
    options = ("--lease-ms", "5000", "--heartbeat-ms", "600000", *harness.LEASES_OF_8)
    server = start(harness.Server, database, options=options)  # noqa: F811
    hand = Hand(server, "a")
    submit_many(server)
    session(HOLDS)
    for _ in range(600):
        assert hand.post(hand.pull().json).status == 200
    log = postgres.folder / "log"

    def blocks():
        return [blocks_read(plan, "leases_due") for name, plan in plans_since(log, 0) if name == "leases_expire_due"]

    before = len(blocks())
    wait_until(lambda: blocks()[before:][-1:] and blocks()[-1] <= 5, 60, "a search from a place after those that ended")


def test_while_a_search_of_all_held_leases_fails_those_that_are_due_are_found(start, database, postgres):
    """And the lease that was not found is, once the search succeeds again."""
    options = ("--lease-ms", "3000", "--heartbeat-ms", "600000", *harness.LEASES_OF_8)
    server = start(harness.Server, database, options=options)  # noqa: F811
    hand = Hand(server, "a")
    submit_many(server)

    def sql(text):
        return postgres.sql(text, conninfo=database)

    def runs(what, statement):
        return metric(server, f'wavetune_db_{what}_total{{statement="{statement}"}}')

    def is_lost(lease):
        return sql(f"select state <> 'held' or epoch > {lease['epoch']} from leases where id = {lease['lease']}") == "t"

    def broken():
        """A lease that has ended, and is not due. No search of all can state what it took."""
        lease = hand.pull(wait=60).json
        # Unless it has expired by itself before.
        return sql("update leases set epoch_device_us = -9223372036854775807, due_at = null, expires_at = now() - interval '1 s' "
                   f"where id = {lease['lease']} and epoch = {lease['epoch']} and state = 'held' returning id") and lease

    hidden = wait_until(broken, 60, "a lease that no search of all can read")
    wait_until(lambda: runs("failures", "leases_expire") >= 1, 60, "a search of all that fails")
    assert "out of range" in server.messages
    due = runs("runs", "leases_expire_due")
    lease = hand.pull(wait=60).json
    wait_until(lambda: is_lost(lease), 60, "the lease to expire")
    assert runs("runs", "leases_expire_due") > due and runs("failures", "leases_expire_due") == 0
    assert not is_lost(hidden)
    sql(f"update leases set epoch_device_us = 0 where id = {hidden['lease']}")
    wait_until(lambda: is_lost(hidden), 60, "the other one to expire")


def test_a_lease_that_comes_back_is_granted_before_later_ones(server, hands, submit):  # noqa: F811
    submit({"parameters": {"A": list(range(200 * 8))}})
    hand = hands("a")
    first = hand.pull().json
    for _ in range(100):
        assert hand.post(hand.pull().json).status == 200
    assert server.request("POST", f"/v1/leases/{first['lease']}/release", {"epoch": first["epoch"], "reason": "test"}).status == 200
    again = hand.pull().json
    assert (again["lease"], again["epoch"]) == (first["lease"], first["epoch"] + 1)


def test_a_job_of_higher_priority_is_granted_before_older_ones(server, hands, submit):  # noqa: F811
    older = submit({"parameters": {"A": list(range(200 * 8))}})
    hand = hands("a")
    for _ in range(100):
        assert hand.post(hand.pull().json).status == 200
    urgent = submit({"parameters": {"A": list(range(16))}}, priority=7)
    raised = submit({"parameters": {"A": list(range(24))}})
    assert [hand.pull().json["job"] for _ in range(3)] == [urgent, urgent, older]
    server.request("POST", "/v1/jobs", {"kernel": server.get(f"/v1/jobs/{raised}")["kernel"], "key": {"n": 64}, "priority": 9,
                                        "space": {"parameters": {"A": list(range(24))}},
                                        "environment": server.get(f"/v1/jobs/{raised}")["environment"]})
    assert [hand.pull().json["job"] for _ in range(4)] == [raised] * 3 + [older]


def test_what_another_server_opened_is_granted_when_there_is_no_other_work(server, hands, submit, start, database):  # noqa: F811
    other = start(harness.Server, database, options=harness.UNHURRIED)
    here, there = hands("a"), Hand(other, "b")
    for n in range(3):
        submit({"parameters": {"A": list(range(8))}}, key={"n": 1 + n})  # at the first server
        lease = there.pull(wait=60)
        assert lease.status == 200, lease
        assert there.post(lease.json).status == 200
        there.work()
        assert here.pull().status == there.pull().status == 204


def test_what_another_server_opened_with_a_higher_priority_is_granted_soon(server, hands, submit, start, database):  # noqa: F811
    other = start(harness.Server, database, options=harness.UNHURRIED)
    submit({"parameters": {"A": list(range(400 * 8))}})
    there = Hand(other, "b")
    for _ in range(50):
        assert there.post(there.pull().json).status == 200
    urgent = submit({"parameters": {"A": list(range(8))}}, priority=7)
    wait_until(lambda: there.pull().json["job"] == urgent, 20, "a lease of the urgent job")


def test_only_a_search_for_due_leases_can_use_their_index(database, postgres):
    """With a forgotten transaction it has an entry of each lease that ended: a grant that used it took half a second."""
    def plan(condition):
        return postgres.sql(f"""
            begin;
            set local enable_seqscan = off;
            do $$ declare name text; begin
              alter table leases drop constraint leases_pkey cascade;
              for name in select indexname from pg_indexes where tablename = 'leases' and indexname <> 'leases_due' loop
                execute format('drop index %I', name);
              end loop;
            end $$;
            explain select from leases where state = 'held' and {condition};
            rollback""", conninfo=database)

    assert "leases_due" in plan("due_at < now()")
    assert "leases_due" not in plan("agent = 'a' and device = 'd'")
