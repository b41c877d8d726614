"""Measurements in partitions by ranges of jobs: how partitions are made ahead, and how old ones are emptied."""

import hashlib
import itertools
import json
import re
import subprocess
import threading

import harness
import pytest
from hands import ENVIRONMENT, LARGE, SMALL, Hand, configs_of, hands, kernel, register, server, submit  # noqa: F401 (fixtures)
from harness import wait_until, wavetune

FIRST_END = 1001  # of a new database


class Session:
    """A psql that keeps its transaction open between statements."""

    def __init__(self, conninfo):
        self.process = subprocess.Popen([str(harness.postgres_bin() / "psql"), conninfo, "-XAtq", "-v", "ON_ERROR_STOP=1"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, sql):
        print(sql, ";\n\\echo done", sep="", file=self.process.stdin, flush=True)
        lines = []
        while (line := self.process.stdout.readline().strip()) != "done":
            assert line or self.process.poll() is None, sql
            lines.append(line)
        return "\n".join(lines)

    def close(self):
        self.process.stdin.close()
        self.process.wait(300)


@pytest.fixture
def session(database):
    sessions = []

    def begin(conninfo=database):
        sessions.append(Session(conninfo))
        sessions[-1].run("begin")
        return sessions[-1]

    yield begin
    for each in sessions:
        each.close()


@pytest.fixture
def sql(postgres, database):
    return lambda text: postgres.sql(text, conninfo=database)


def ranges(sql, more="true"):
    rows = sql(f"select first_job, end_job from measurement_partitions where {more} order by first_job").splitlines()
    return [tuple(map(int, row.split("|"))) for row in rows]


def jump(sql, job):
    """The next job that is submitted has this id."""
    sql(f"select setval(pg_get_serial_sequence('jobs', 'id'), {job}, false)")


COPY = ("insert into jobs (kernel, key, key_digest, space_digest, environment_id, tag, run, priority, baseline, seed, configs, runner,"
        " device_class) select kernel, key, key_digest, space_digest, environment_id, tag, gen_random_uuid()::text, 0, 0, 7, 3, runner,"
        " device_class from (select * from jobs order by id limit 1) j")  # a job, as another server's transaction inserts it


def run_job(submit, hand, n=64, run="", **more):  # noqa: F811
    """A done job; returns its id."""
    job = submit(SMALL, key={"n": n}, run=run)
    hand.work(rounds=12, ratios={0: 1.0, 1: 0.5, 2: 2.0}, **more)
    return job


# Partitions are made ahead


def test_the_next_partition_is_made_when_half_of_the_last_one_is_used(submit, sql):
    jump(sql, 499)
    assert submit(SMALL) == "499" and ranges(sql) == [(0, FIRST_END)]
    assert submit(SMALL, run="b") == "500"
    (_, first), (second, end) = ranges(sql)
    assert first == second == FIRST_END and end > first
    assert sql("select count(*) from pg_inherits where inhparent = 'measurements'::regclass") == "2"


def test_a_gap_in_the_ids_of_jobs_gets_a_partition_too(submit, hands, sql):
    """As after a restore, where the ids continue a million later."""
    jump(sql, 1_000_500)
    job = submit(SMALL)
    (_, first), (second, end) = ranges(sql)
    assert first == second and second <= int(job) < end
    hands("a").work()
    assert int(sql(f"select count(*) from measurements where job_id = {job}")) > 3


def test_the_width_follows_the_size_of_jobs_and_their_pace(submit, sql):
    submit(SMALL)
    width = "select measurement_partition_width()"
    assert sql(width) == "100", "a few jobs a day: at least 100"
    sql(f"{COPY}, generate_series(1, 20000)")
    assert sql(width) == str(30 * 20001), "30 days of 20,001 jobs a day"
    sql("update jobs set configs = 100000")
    assert sql(width) == "100", "of jobs with 100,000 configs 40 have 4 million measurements"
    sql("update jobs set configs = 1000; update jobs set created_at = now() - interval '10 days' where id <= 10000")
    assert sql(width) == "4000", "of 1,000 configs 4,000 jobs"
    sql("update jobs set configs = 10; update jobs set created_at = now() - interval '10 days' where id <= 10000")
    assert abs(int(sql(width)) - 30 * 20001 / 10) < 100, "20,001 jobs in ten days"


def test_posts_and_reads_go_on_while_another_transaction_makes_a_partition(submit, hands, server, session, sql):
    job, hand = submit(LARGE), hands("a")
    lease = hand.pull().json
    jump(sql, 700)
    other = session()
    other.run(COPY)
    assert other.run("select count(*) from measurement_partitions") == "2"
    assert hand.post(lease).status == 200
    assert len(server.get(f"/v1/jobs/{job}/measurements")["items"]) == len(configs_of(lease))
    assert ranges(sql) == [(0, FIRST_END)], "it is not committed"
    other.run("commit")
    assert len(ranges(sql)) == 2


def test_a_partition_is_made_while_results_are_being_posted(submit, hands, session, sql):
    submit(LARGE), hands("a").pull()
    posting = session()
    posting.run("update measurements set late = late")  # takes the locks of a post, also in each partition
    posting.run("select * from measurements for update")
    jump(sql, 700)
    submit(SMALL)
    assert len(ranges(sql)) == 2
    posting.run("commit")


def test_a_submission_waits_for_another_ones_partition_only_if_it_has_none(submit, server, session, sql):
    submit(SMALL)
    jump(sql, 700)
    other = session()
    other.run(COPY)
    assert submit(SMALL, run="before the end") == "701"
    jump(sql, FIRST_END)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(submit(SMALL, run="behind it")))
    thread.start()
    wait_until(lambda: sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") != "0", 60, "it to wait")
    assert not answers and ranges(sql) == [(0, FIRST_END)]
    other.run("commit")
    thread.join()
    (_, first), (second, end), *rest = ranges(sql)
    assert answers == [str(FIRST_END)] and first == second <= FIRST_END < end and not rest, "one partition, without a gap"


def test_two_servers_submit_across_ranges_without_a_gap_or_an_overlap(start, database, server, kernel, sql):  # noqa: F811
    second = start(harness.Server, database, options=harness.UNHURRIED)
    jump(sql, 480)
    failures = []

    def run(on, name):
        for i in range(12):
            jobs = [{"kernel": kernel, "key": {"n": 64}, "space": SMALL, "environment": ENVIRONMENT, "run": f"{name}-{i}-{k}"}
                    for k in range(50)]
            answer = on.request("POST", "/v1/jobs", {"jobs": jobs})
            if answer.status != 201:
                failures.append(answer)

    threads = [threading.Thread(target=run, args=(on, f"{i}")) for i, on in enumerate((server, second, server, second))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not failures
    found = ranges(sql)
    assert [end for _, end in found[:-1]] == [first for first, _ in found[1:]] and len(found) > 2
    assert int(sql("select max(id) from jobs")) < found[-1][1]
    assert sql("select count(*) from jobs j where not exists (select from measurement_partitions p"
               " where j.id >= p.first_job and j.id < p.end_job)") == "0"


# What a table as a whole promised


def test_unique_keys_hold_in_and_across_partitions(submit, hands, postgres, database, sql):
    hand = hands("a")
    first = run_job(submit, hand)
    jump(sql, FIRST_END + 5)
    second = run_job(submit, hand, run="b")
    assert sql("select count(distinct tableoid) from measurements") == "2"
    columns = sql("select string_agg(format('%I', attname), ',') from pg_attribute where attrelid = 'measurements'::regclass"
                  " and attnum > 0 and attname <> 'id' and not attisdropped")

    def refused(job, **values):
        chosen = ",".join(str(values.get(column, column)) for column in columns.split(","))
        done = subprocess.run([str(harness.postgres_bin() / "psql"), database, "-Xq", "-c",
                               f"insert into measurements ({columns}) select {chosen} from (select * from measurements"
                               f" where job_id = {job} order by id limit 1) m"], capture_output=True, text=True, timeout=600)
        return done.stderr

    for job in (first, second):
        assert "_once" in refused(job, seq=100000)
        assert "lease_id_epoch_seq_key" in refused(job, late="true", quarantined="true")
        assert refused(job, late="true", seq=100001) == ""
    assert "no partition" in refused(first, job_id=10**12, late="true", seq=100002)
    assert sql("select count(*) - count(distinct id) from measurements") == "0"
    assert sql("select count(*) from measurements m join leases l on l.id = m.lease_id and l.job_id <> m.job_id") == "0"


# Retention


class History:
    """Jobs of one range that ended 100 days ago, and a job in the range after it. superseded, served and newest tuned the same
    key; served is in a release."""

    def __init__(self, server, submit, hand, sql):
        self.server, self.sql, self.submit, self.hand, self.keys = server, sql, submit, hand, itertools.count(1000)
        self.superseded = run_job(submit, hand)
        self.served = run_job(submit, hand, run="2")
        self.release = self.publish()
        assert self.job_in_release() == self.served
        self.newest = run_job(submit, hand, run="3")
        self.cancelled = submit(LARGE, run="4")
        hand.post(hand.pull().json, configs=[0, 1], done=False)
        assert server.request("DELETE", f"/v1/jobs/{self.cancelled}").status == 200
        self.jobs = [self.superseded, self.served, self.newest, self.cancelled]
        self.end()
        self.age()

    def publish(self):
        answer = self.server.request("POST", "/v1/releases", {"environment": ENVIRONMENT})
        assert answer.status in (200, 201), answer
        return answer.json["release"]

    def job_in_release(self):
        release = self.server.get(f"/v1/releases/{self.release}")
        return str(release["kernels"][0]["winners"][0][4])

    def end(self):
        """Ends the range: the next job is in the next one."""
        jump(self.sql, max(end for _, end in ranges(self.sql)))
        self.next = self.submit(SMALL, key={"n": next(self.keys)})
        self.hand.work()

    def age(self, days=100):
        self.sql("update jobs set " + ", ".join(f"{at} = {at} - interval '{days} d'" for at in ("created_at", "finished_at")))

    def measurements(self):
        """{job: its stages and whether each is late, counted}"""
        return {job: sorted((m["stage"], m["late"]) for m in self.server.items(f"/v1/jobs/{job}/measurements"))
                for job in [*self.jobs, self.next]}

    def gc(self, **body):
        answer = self.server.request("POST", "/v1/gc", {"keep_days": 90, "measurements": True} | body)
        assert answer.status == 200, answer
        return answer.json["measurements"] | {"more": answer.json["more"]}

    def recompute(self, job):
        return wavetune(self.server, "show", job, "--recompute", check=False)


@pytest.fixture
def history(server, submit, hands, sql):
    return History(server, submit, hands("a"), sql)


def test_a_range_whose_jobs_all_ended_long_ago_keeps_only_the_finals_of_served_and_newest_winners(history, server, sql):
    before = history.measurements()
    would = history.gc(dry_run=True)
    assert (would["partitions"], would["jobs"], would["kept"], would["more"]) == (1, 4, None, False) and would["bytes"] > 0
    assert history.measurements() == before, "a dry run removes nothing"

    removed = history.gc()
    finals = {job: [m for m in before[job] if m == ("final", False)] for job in (history.served, history.newest)}
    assert removed == would | {"kept": sum(map(len, finals.values()))} and all(finals.values())
    assert history.measurements() == finals | {history.superseded: [], history.cancelled: [], history.next: before[history.next]}
    assert history.gc()["partitions"] == 0

    row = server.get("/v1/audit?action=collect")["items"][0]
    assert row["object"] == "older than 90 days"
    assert row["detail"]["measurements"] | {"bytes": 0} == {"from_job": 0, "before_job": FIRST_END, "jobs": 4, "bytes": 0,
                                                            "kept": removed["kept"]}
    assert sql("select count(*) from pg_inherits where inhparent = 'measurements'::regclass") == "2"
    assert sql("select count(*) from pg_class where relname = 'measurements_0'") == "0", "it is dropped"


def test_verdicts_of_kept_winners_are_decided_again_and_other_jobs_say_what_was_removed(history, server):
    resources = server.get(f"/v1/jobs/{history.served}")["winner"]["resources"]
    assert server.get(f"/v1/jobs/{history.served}")["measurements_removed_at"] is None
    wavetune(server, "gc", "--measurements", "--keep-days", "90")
    for job in (history.served, history.newest):
        assert "the same verdict" in history.recompute(job).stdout
        assert "measurements were removed at" in wavetune(server, "show", job).stdout
    assert server.get(f"/v1/jobs/{history.served}")["winner"]["resources"] == resources and resources
    assert server.get(f"/v1/jobs/{history.next}")["measurements_removed_at"] is None

    gone = server.get(f"/v1/jobs/{history.superseded}")
    assert gone["winner"]["verdict"] and gone["measurements_removed_at"]
    done = history.recompute(history.superseded)
    assert done.returncode == 1 and f"removed at {gone['measurements_removed_at']}" in done.stderr
    assert "measurements were removed at" in wavetune(server, "show", history.cancelled, check=False).stdout


def test_a_release_that_is_made_after_the_removal_has_the_same_digest(history, server):
    digest = history.publish()
    history.gc()
    assert history.publish() == digest


def test_the_command_prints_what_it_removed(history, server):
    dry = wavetune(server, "gc", "--measurements", "--keep-days", "90", "--dry-run").stdout
    assert "would remove the measurements of 4 jobs (" in dry
    assert "removed the measurements of 4 jobs (" in wavetune(server, "gc", "--measurements", "--keep-days", "90").stdout
    assert "measurements" not in wavetune(server, "gc", "--keep-days", "90").stdout


@pytest.mark.parametrize("why, change", [
    ("a job ended later", "update jobs set finished_at = now() - interval '89 d' where id = {cancelled}"),
    ("a job has not ended", "update jobs set state = 'running', finished_at = null where id = {cancelled}"),
    ("the next range has no old job", "update jobs set created_at = now() where id = {next}"),
])
def test_a_range_stays_while(history, sql, why, change):
    before = history.measurements()
    sql(change.format(**vars(history)))
    assert history.gc(dry_run=True)["partitions"] == 0 == history.gc()["partitions"], why
    assert history.measurements() == before


def test_without_the_flag_measurements_stay(history):
    before = history.measurements()
    assert history.gc(measurements=False)["partitions"] == 0
    assert history.measurements() == before


def test_a_late_post_to_a_removed_range_is_kept_as_evidence(history, server, hands):
    hand = hands("late")
    job = history.submit(SMALL, run="5", key={"n": 66})
    lease = hand.pull().json
    assert server.request("DELETE", f"/v1/jobs/{job}").status == 200
    history.end(), history.age()
    history.gc(), history.gc()
    assert server.get(f"/v1/jobs/{job}")["measurements_removed_at"]
    assert hand.post(lease).status == 409
    assert {m["late"] for m in server.items(f"/v1/jobs/{job}/measurements")} == {True}
    assert hand.post(lease).status == 409


def test_ranges_beside_each_other_that_were_emptied_share_one_partition(history, server, hands, sql):
    tables = "select string_agg(distinct partition, ' ' order by partition) from measurement_partitions where emptied_at is not null"
    history.gc()
    kept = {job: rows for job, rows in history.measurements().items() if job in history.jobs}
    held = history.submit(SMALL, run="held")  # in the second range; it does not end
    assert hands("holder").pull().json["job"] == held
    history.end()
    third = run_job(history.submit, history.hand, n=70)
    history.end(), history.age()
    (_, second), (_, third_first), (_, third_end), *_ = ranges(sql)
    removed = history.gc()
    assert (removed["partitions"], removed["jobs"], removed["more"]) == (1, 2, False)
    assert sql(tables) == f"measurements_kept_0_{second} measurements_kept_{third_first}_{third_end}"

    assert server.request("DELETE", f"/v1/jobs/{held}").status == 200
    history.age()
    assert history.gc()["partitions"] == 1
    assert sql(tables) == f"measurements_kept_0_{third_end}"
    assert sql("select count(*) from pg_inherits where inhparent = 'measurements'::regclass") == str(
        1 + len(ranges(sql, "emptied_at is null")))
    assert {job: rows for job, rows in history.measurements().items() if job in history.jobs} == kept
    assert "the same verdict" in history.recompute(third).stdout
    assert len({server.get(f"/v1/jobs/{job}")["measurements_removed_at"] for job in (history.served, third)}) == 2


def test_evidence_of_a_winner_that_is_not_served_any_more_goes_when_the_next_range_is_emptied(history, sql):
    history.gc()
    assert history.measurements()[history.served]
    sql("delete from release_fetches; delete from releases")
    history.end(), history.age()
    assert history.gc()["partitions"] == 1
    left = history.measurements()
    assert left[history.served] == [] and left[history.newest]


def test_a_job_that_is_added_to_an_emptied_range_keeps_its_measurements(history, hands, sql):
    """Its id was taken before the range was emptied."""
    history.gc()
    jump(sql, 900)
    late = history.submit(SMALL, run="late", key={"n": 71})
    hands("late").work()
    history.jobs.append(late)
    measured = history.measurements()[late]
    assert {stage for stage, _ in measured} == {"screen", "final"}
    jump(sql, max(end for _, end in ranges(sql)))
    history.end()
    sql(f"update jobs set created_at = created_at - interval '100 d', finished_at = finished_at - interval '100 d' where id <> {late}")
    assert history.gc()["partitions"] == 1
    assert history.measurements()[late] == measured


def test_objects_of_removed_measurements_are_removed_and_those_of_kept_ones_stay(history, sql, server):
    code = b"the code that was timed"
    digest = hashlib.sha256(code).hexdigest()
    assert server.request("PUT", f"/v1/blobs/sha256:{digest}", code).status == 201
    sql(f"insert into measurement_objects select job_id, id, '\\x{digest}' from measurements where stage = 'final'")
    history.gc()
    assert sql("select count(*) from measurement_objects o where not exists (select from measurements m"
               " where m.job_id = o.job_id and m.id = o.measurement)") == "0"
    assert sql(f"select count(*) from measurement_objects where job_id = {history.served}") == sql(
        f"select count(*) from measurements where job_id = {history.served}") != "0"
    assert {r["object"] for r in server.get(f"/v1/jobs/{history.served}")["winner"]["resources"]} == {f"sha256:{digest}"}


def test_a_removal_gives_up_when_a_reader_does_not_end_and_is_tried_again(history, server, session):
    before = history.measurements()
    reader = session()
    reader.run("select count(*) from measurements")
    answer = server.request("POST", "/v1/gc", {"keep_days": 90, "measurements": True})
    assert answer.status == 503 and "in use, perhaps by a backup" in answer.json["detail"]
    assert history.measurements() == before
    reader.run("commit")
    assert history.gc()["partitions"] == 1


def test_two_removals_at_once_remove_once(history, server, session, sql):
    other = session()
    assert other.run("select jobs from measurements_remove(0, 90)") == "4"
    answers = []
    thread = threading.Thread(target=lambda: answers.append(history.gc()))
    thread.start()
    wait_until(lambda: sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'") != "0", 60, "it to wait")
    other.run("commit")
    thread.join()
    assert answers[0]["partitions"] == 0
    assert len([r for r in server.get("/v1/audit?action=collect")["items"] if "measurements" in r["detail"]]) == 0


def test_one_of_several_servers_collects_once_a_day(history, start, database, sql):
    due = "select at > now() from collection_due"
    sql("update collection_due set at = now() + interval '1 h'")
    servers = [start(harness.Server, database, options=("--keep-days", "90", "--poll-ms", "20", *harness.UNHURRIED))
               for _ in range(2)]
    rows = "select count(*) from audit where action = 'collect' and detail::text like '%measurements%'"
    assert sql(rows) == "0" and history.measurements()[history.superseded]
    sql("update collection_due set at = now()")
    wait_until(lambda: sql(rows) == "1", 60, "a server to collect")
    assert sql(due) == "t" and history.measurements()[history.superseded] == []
    assert sql("select at > now() + interval '23 h' from collection_due") == "t"
    wait_until(lambda: sum("gc: (server) removed" in server.messages for server in servers) == 1, 60, "one of them to say so")
    assert sql("select distinct token from audit where action = 'collect'") == "(server)"


def test_a_collection_that_fails_is_tried_again_within_minutes(history, start, database, session, sql):
    reader = session()
    reader.run("select count(*) from measurements")
    server = start(harness.Server, database, options=("--keep-days", "90", "--poll-ms", "20", *harness.UNHURRIED))
    sql("update collection_due set at = now()")
    wait_until(lambda: "it tries again in 10 minutes" in server.messages, 60, "the server to give up")
    wait_until(lambda: sql("select at < now() + interval '1 h' from collection_due") == "t", 60, "it to be postponed")
    assert sql("select at > now() from collection_due") == "t"


def test_a_failure_is_logged_when_the_next_collection_cannot_be_read_or_postponed(history, start, database, session, sql):
    sql("alter table collection_due rename to hidden")
    server = start(harness.Server, database, options=("--keep-days", "90", "--poll-ms", "20", *harness.UNHURRIED))
    wait_until(lambda: re.search(r"gc: .*collection_due", server.messages), 60, "it to say that it cannot read when it is due")
    sql("create function refuse() returns trigger language plpgsql as $$ begin if new.at < now() + interval '1 h' then"
        " raise exception 'no postponement'; end if; return new; end $$;"
        " create trigger refuse before update on hidden for each row execute function refuse()")
    reader = session()
    reader.run("select count(*) from measurements")
    sql("alter table hidden rename to collection_due")
    wait_until(lambda: re.search("gc: the next try is in a day: .*no postponement", server.messages), 60, "it to say so")
    assert history.measurements()[history.superseded]


def test_a_serving_role_makes_partitions_and_removes_measurements_but_drops_no_table(postgres, start, tmp_path):
    database = postgres.database(migrated=False)
    name = database.split("dbname=")[1]
    postgres.sql(f"create role owner_{name} login; create role serve_{name} login; create role other_{name} login;"
                 f"alter database {name} owner to owner_{name}", database="postgres")
    owner, serving, other = (database.replace("user=postgres", f"user={role}_{name}") for role in ("owner", "serve", "other"))
    done = subprocess.run([harness.BUILD / "wavetune-server", "migrate", "--database", owner, "--serve-role", f"serve_{name}"],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    server = start(harness.Server, serving, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))  # noqa: F811
    kernel = register(server)  # noqa: F811
    sql = lambda text: postgres.sql(text, conninfo=database)

    def submit(space, **more):  # noqa: F811
        body = {"kernel": kernel, "key": {"n": 64}, "space": space, "environment": ENVIRONMENT} | more
        answer = server.request("POST", "/v1/jobs", body)
        assert answer.status == 201, answer
        return answer.json["job"]

    history = History(server, submit, Hand(server, "a"), sql)
    assert len(ranges(sql)) == 2 and history.gc()["kept"] > 0
    for who, statement in ((serving, "drop table measurements_1001"), (serving, "truncate measurements"),
                           (other, "select measurements_remove(0, 90)"), (other, "select * from measurements"),
                           (serving, "alter table measurements detach partition measurements_1001")):
        done = subprocess.run([str(harness.postgres_bin() / "psql"), who, "-XAtqc", statement], capture_output=True, text=True, timeout=600)
        assert done.returncode != 0 and ("permission denied" in done.stderr or "must be owner" in done.stderr), (statement, done)
