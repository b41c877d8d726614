"""Every two transactions of the server that write a table in common (transactions.py), in every order of two connections: the
second one begins after each statement of the first, and where it does not have to wait, either of them commits first. After each
nothing is broken (tests/data/pairs.sql), no update is lost, and no transaction fails but one that the server runs again.

The statements are those of the .sql files; one that is new there needs a transaction here.
"""

import json
import types

import harness
import pytest
import statements
import transactions
from hands import ENVIRONMENT, LARGE, SMALL, Hand, configs_of, register
from transactions import ALL, COMMIT, RETRIED, SUMS

SUBJECTS = ("lease", "measure", "job", "channel", "token", "poison")
STATEMENTS = statements.read()
TABLES = set().union(*(s.writes for s in STATEMENTS.values() if s.subject in SUBJECTS))
KEPT = sorted(TABLES | {"devices", "job_usage"})  # a trigger on jobs writes job_usage
# Statements that write one of these tables and need no transaction here.
EXEMPT = {"captures_results": "adds spaces that are not there yet, ON CONFLICT DO NOTHING, as spaces_store does"}
POISONED = "\\x" + "07" * 32
WAITS_MS = 2  # before the database is asked whether a session that does not answer waits for a lock


def make_world(postgres, database, start):
    """Four jobs: done; in its final, with everything measured; running, with a held, an expired and an open lease; queued."""
    server = start(harness.Server, database, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
    kernel = register(server)
    elsewhere = {**ENVIRONMENT, "gpu": "Another CPU"}

    def submit(space, environment=ENVIRONMENT, **more):
        body = {"kernel": kernel, "key": {"n": 64}, "space": space, "environment": environment, **more}
        answer = server.request("POST", "/v1/jobs", body)
        assert answer.status == 201, answer
        return answer.json["job"]

    def sql(text):
        return postgres.sql(text, conninfo=database)

    holder, loser, other = Hand(server, "holder"), Hand(server, "loser"), Hand(server, "other", environment=elsewhere)
    done = submit(SMALL)
    holder.work(device_us=30000)
    release = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT}).json["release"]
    pins = [{"kernel": kernel, "key": {"n": 64}, "config": {"A": 3}}]
    pinned = server.request("POST", "/v1/releases", {"environment": ENVIRONMENT, "pins": pins}).json["release"]
    assert server.request("PUT", "/v1/channels/stable", {"release": release}, headers={"If-None-Match": "*"}).status == 200
    deciding = submit(SMALL, run="second")
    holder.work(device_us=30000)
    running = submit(LARGE)
    held = holder.pull().json
    assert holder.post(held, configs_of(held)[:2], done=False).status == 200
    expired, opened = loser.pull().json, sql("select id from leases where state = 'open'").split()[0]
    queued = submit(LARGE, elsewhere, priority=3)
    idle = Hand(server, "idle")
    environment_digest = sql(f"select environment_digest from releases where digest = '\\x{release[7:]}'")
    for name, role, *options in (("admin-1", "admin"), ("admin-2", "admin"), ("enrol", "enrol"), ("over", "reader"), ("spent", "agent"),
                                 ("own", "agent"), ("next", "agent")):
        harness.make_token(database, name, role)
    assert server.stop() == 0

    sql(f"""
        update jobs set state = 'running', finished_at = null, events = events - 1 where id = {deciding};
        delete from job_events e using jobs j where j.id = {deciding} and e.job_id = j.id and e.event > j.events;
        delete from winners where job_id = {deciding};
        update leases set config_us = 1000000, granted_at = now() - interval '10 s', expires_at = now() + interval '1 hour'
            where id = {held['lease']};
        update leases set expires_at = now() - interval '1 s', due_at = now() - interval '1 s',
            current_config = {configs_of(expired)[0]} where id = {expired['lease']};
        insert into proposals (channel, release, environment_digest, environment, tag, regime, winners, images, etag, changes)
            select 'stable', digest, environment_digest, environment, tag, regime, 1, '{{a}}', 'e', '{{}}' from releases
            where digest = '\\x{pinned[7:]}';
        update tokens set revoked_at = now() where role = 'admin' and name not like 'admin-_';
        update tokens set created_at = now() - interval '2 hours', expires_at = now() - interval '1 hour' where name = 'over';
        update tokens set revoked_at = now() where name = 'spent';
        update tokens set agent = '{idle.id}' where name in ('own', 'next');
        update tokens set replaces = (select id from tokens where name = 'own') where name = 'next'""")
    # Two losses of a config, one not judged yet, and its entry in the ledger of poison.
    sql(f"""
        insert into losses (job_id, config, lease_id, epoch, agent, device, at, judged_at, subjects)
            values ({running}, 3, {opened}, -2, 'a', 'cpu0', now() - interval '2 hours', now(), array['{POISONED}'::bytea]),
                   ({running}, 3, {opened}, -1, 'b', 'cpu0', now() - interval '1 hour', null, '{{}}');
        insert into poison (scope, subject, device_class, environment_id, kernel, config_values, reason, evidence)
            select 'config', '{POISONED}', device_class, environment_id, kernel, '{{}}', 'lost', '[]' from jobs where id = {running}""")
    identity = sql("select row_to_json(j) from (select kernel, key_digest, space_digest, e.digest as environment, tag, regime, purpose, "
                   "is_plain, key::text as key, build, device_class, seed, baseline, baseline_from, default_config, "
                   "configs, config_us, final_devices, likely::text as likely "
                   f"from jobs join environments e on e.id = environment_id where jobs.id = {running}) j")
    tokens = dict(line.split("|") for line in sql("select name, id from tokens where revoked_at is null").splitlines())
    queues = json.loads(sql("select json_agg(q order by class, owner, priority) from (select distinct device_class as class, owner_id as owner, "
                            "priority from leases where state = 'open') q"))
    owner_id, owner_name = sql("select o.id, o.name from owners o join jobs j on j.owner_id = o.id limit 1").split("|")
    return types.SimpleNamespace(
        queues=queues, owner_id=int(owner_id), owner_name=owner_name,
        done=done, deciding=deciding, running=running, queued=queued, holder=holder.id, loser=loser.id, other=other.id, idle=idle.id,
        held=held["lease"], held_configs=configs_of(held)[2:], expired=expired["lease"], expired_configs=configs_of(expired),
        open=opened, open_configs=sorted(transactions.configs(sql(f"select remaining from leases where id = {opened}"))),
        round=int(sql(f"select round from jobs where id = {deciding}")), identity=json.loads(identity),
        winner=sql(f"select config_values from winners where job_id = {done}"), environment_digest=environment_digest,
        release_before="\\x" + release[7:], release="\\x" + pinned[7:],
        channel=sql("select id from channels"), proposal=sql("select id from proposals"), enrol_token=tokens["enrol"], owner=idle.id,
        poison=sql("select id from poison"), poisoned=POISONED, own_token=tokens["own"], next_token=tokens["next"],
        certificate_digest=bytes.fromhex(sql("select encode(digest, 'hex') from tokens where name = 'spent'")))


class Actor:
    """One of the two connections, with its transaction."""

    def __init__(self, bench, session, name):
        self.bench, self.session, self.name = bench, session, name
        self.effects, self.ran, self.retries, self.n_steps = {}, [], 0, 0
        self.restart()

    def restart(self):
        self.steps, self.rows = ALL[self.name](self.bench.world), None
        self.is_busy = self.has_ended = self.is_over = False
        self.session.write("begin;\n")

    def advance(self):
        """Begins the next statement, or ends the transaction where there is none."""
        try:
            step = self.steps.send(self.rows)
        except StopIteration as end:
            self.has_ended, self.effects = True, end.value or {}
            return
        self.is_busy = True
        self.n_steps += 1
        if step == COMMIT:
            self.session.begin_text(COMMIT)
        else:
            self.ran.append(step[0])
            self.bench.dirty |= STATEMENTS[step[0]].writes | ({"job_usage"} if "jobs" in STATEMENTS[step[0]].writes else set())
            self.session.begin(*step)

    def collect(self):
        """Takes the rows of a statement that has ended. A transaction that the database ended is run again later."""
        self.is_busy = False
        try:
            self.rows = self.session.finish()
        except statements.Failed as failed:
            assert failed.state in ("40P01", "40001") or (failed.state == "23505" and self.name in ("grant", "begin", "begin_search")), (self.name, failed)
            assert self.name in RETRIED, f"{self.name} is not run again after {failed}"
            self.session.run_text("rollback")
            self.is_over, self.retries = True, self.retries + 1

    def commit(self):
        self.session.run_text("commit")
        self.is_over = True


class Bench:
    def __init__(self, postgres, database, start):
        self.world = make_world(postgres, database, start)
        text = (harness.DATA / "pairs.sql").read_text().replace(":tables", statements.literal(KEPT))
        postgres.sql(text, conninfo=database)
        self.database = database
        self.observer = statements.Session(database, STATEMENTS)
        self.observer.stop_on_errors()
        self.connect()
        self.observer.run_text("set session_replication_role = replica; set plan_cache_mode = force_generic_plan; set jit = off")
        for row in self.observer.run_text("select name, columns from before.tables"):
            table, columns = row["name"], row["columns"]
            self.observer.run_text(f"prepare empty_{table} as delete from {table}; prepare fill_{table} as insert into {table} "
                                   f"({columns}) overriding system value select * from before.x_{table}")
        sums = " ".join(f"union all select '{name}', ({query})::text" for name, query in SUMS.items())
        self.observer.run_text("prepare look as select 'broken' as what, what as found from before.broken "
                               f"union all select 'unswept', id::text from before.unswept {sums}")
        self.runs, self.conflicts, self.dirty = 0, [], set(KEPT)
        self.before = self.look()

    def connect(self):
        self.first, self.second = (statements.Session(self.database, STATEMENTS) for _ in range(2))

    def reconnect(self):
        """After a failure, which leaves transactions open."""
        for session in (self.first, self.second):
            session.process.kill()
            self.observer.run_text(f"select pg_terminate_backend({session.pid}, 10000)")
        self.connect()

    def close(self):
        for session in (self.observer, self.first, self.second):
            session.close()

    def look(self):
        """What is broken, which leases the housekeeper would cancel, and the sums."""
        found = {"broken": [], "unswept": []}
        for row in self.observer.run_text("execute look"):
            if row["what"] in SUMS:
                found[row["what"]] = int(row["found"] or 0)
            else:
                found[row["what"]].append(row["found"])
        return found

    def restore(self):
        """Puts back what the statements since then have changed."""
        if self.runs % 50 == 0:
            for table in KEPT:
                self.observer.run_text(f"vacuum {table}")
        changed, self.dirty = sorted(self.dirty & set(KEPT)), set()
        # One message to the server: psql sends what \\; separates together.
        each = [f"execute empty_{table}\\; execute fill_{table}" for table in changed]
        self.observer.run_text("\\; ".join(["delete from before.violations", *each]))
        self.runs += 1

    def waits(self, actor):
        """Whether an actor's statement waits for a lock; else it has ended."""
        while not actor.session.is_done(WAITS_MS / 1000):
            if self.observer.run_text(f"select cardinality(pg_blocking_pids({actor.session.pid})) as n")[0]["n"] != "0":
                return not actor.session.is_done()
        return False

    def alone(self, name):
        """Runs a transaction with no other, and returns its actor."""
        actor = Actor(self, self.first, name)
        self.go_on(actor)
        return actor

    def go_on(self, actor):
        while not actor.is_over:
            actor.advance()
            if actor.has_ended:
                actor.commit()
            else:
                actor.collect()
        while actor.retries and not actor.has_ended:
            actor.restart()
            self.go_on(actor)

    def together(self, first, second, pause, second_commits_first):
        """Runs `second` after `pause` statements of `first`, as far as it can, then the rest. None: `first` has fewer statements.
        Else whether it makes a difference which one commits first."""
        a = Actor(self, self.first, first)
        for _ in range(pause):
            a.advance()
            if a.has_ended:
                self.first.run_text("rollback")
                return None
            a.collect()

        b, has_waited = Actor(self, self.second, second), False
        while not (a.is_over and b.is_over):
            for actor in (a, b):
                if actor.is_busy and not self.waits(actor):
                    actor.collect()
            has_waited |= a.is_busy or b.is_busy
            if not b.is_busy and not b.has_ended and not b.is_over:
                b.advance()
            elif b.has_ended and not b.is_over and (second_commits_first or a.is_over or a.is_busy):
                b.commit()
            elif not a.is_busy and not a.is_over:
                a.commit() if a.has_ended else a.advance()
        for actor in (a, b):
            self.conflicts += [(first, pause, second, actor.name)] * actor.retries
            if not actor.has_ended:
                actor.restart()
                self.go_on(actor)
        self.check((a, b))
        return not has_waited

    def check(self, actors):
        found = self.look()
        if found["unswept"]:
            self.go_on(Actor(self, self.first, "sweep"))
            found = self.look()
        assert found == {name: before + sum(actor.effects.get(name, 0) for actor in actors) if name in SUMS else before
                         for name, before in self.before.items()}


@pytest.fixture(scope="module")
def bench(postgres, tmp_path_factory):
    programs = []

    def start(kind, first, **options):
        programs.append(kind(first, tmp_path_factory.mktemp("pairs"), **options))
        return programs[-1]

    bench = Bench(postgres, postgres.database(), start)
    yield bench
    print(f"{bench.runs} runs, conflicts, each run again: {bench.conflicts}")
    bench.close()
    for program in programs:
        program.kill()


@pytest.fixture(scope="module")
def ran(bench):
    """Each transaction, run alone: `ran` are its statements."""
    found = {}
    for name in ALL:
        bench.restore()
        actor = bench.alone(name)
        bench.check([actor])
        found[name] = actor
    return found


def test_each_writing_statement_of_these_subjects_is_in_a_transaction(ran):
    wanted = {s.name for s in STATEMENTS.values() if s.writes & TABLES or (s.locks and s.subject in SUBJECTS)}
    missing = wanted - {statement for actor in ran.values() for statement in actor.ran} - set(EXEMPT)
    assert not missing, "write a transaction in transactions.py that runs them, or say in EXEMPT why not"
    assert not set(EXEMPT) - wanted


@pytest.mark.parametrize("first", ALL)
def test_whatever_is_between_two_statements_nothing_breaks(bench, ran, first):
    def writes(name):
        return set().union(*(STATEMENTS[statement].writes for statement in ran[name].ran))

    for second in ALL:
        if not writes(first) & writes(second) & TABLES:
            continue
        pause, commits_matter = 1, True
        while commits_matter is not None:
            for second_commits_first in (True, False):
                bench.restore()
                try:
                    commits_matter = bench.together(first, second, pause, second_commits_first)
                except AssertionError as error:
                    bench.reconnect()
                    order = "second commits first" if second_commits_first else "first commits first"
                    raise AssertionError(f"{first}, and after its statement {pause} ({ran[first].ran[:pause]}) {second}; {order}") from error
                # After the last statement of both, this order is that of the pair turned round.
                if not commits_matter or pause == ran[first].n_steps:
                    break
            pause += 1
