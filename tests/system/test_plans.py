"""How much the server's statements read when PostgreSQL's statistics are stale: the tables were analysed while no lease was open,
then many leases were added. auto_explain logs the plans of the running server."""

import json
import re

import harness
import pytest
import statements
from hands import ENVIRONMENT, Hand, configs_of, register
from harness import wait_until

DONE_JOBS, OPEN_JOBS, LEASES_A_JOB = 150, 60, 100
OPEN_LEASES = OPEN_JOBS * LEASES_A_JOB
WATCHED = ("jobs", "leases", "measurements", "winners")
# The rows that a statement may read in one run: a few jobs with all their leases, not all open leases nor those of all jobs.
ROWS_MAX, BLOCKS_MAX = 1000, 4000
ROWS_MAX_OF = {"results_known": 20, "drift_note": 20,  # of a lease, where its job has hundreds
               "fleet_open": 2 * OPEN_LEASES, "fleet_device_seconds": OPEN_LEASES,  # all live leases, and those of running jobs
               "leases_cancel_all_ended": OPEN_LEASES + 1000,  # a sweep: all live leases, but no ended ones
               "leases_count": OPEN_LEASES + 1000,
               "kernels_pace": 16 * LEASES_A_JOB + 1000,  # the screens of the kernel's newest jobs
               "jobs_list": 100 * LEASES_A_JOB + 1000}  # a page of jobs, with the times of their leases
# It writes thousands of leases.
NOT_JUDGED = {"leases_insert"}
# Statements of one job, which read one partition of the measurements however many there are.
OF_ONE_JOB = {"results_known", "drift_note", "job_measurements_list", "job_get", "flag_facts", "measurements_screen_ranked",
              "measurements_screen_outcomes", "measurements_final", "results_insert"}
PARTITIONS = 7
OTHERS = 3000  # jobs of another kernel
EXPLAIN = {"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
           "auto_explain.log_timing": "off", "auto_explain.log_buffers": "on", "auto_explain.log_format": "json",
           "log_min_duration_statement": "0"}

# Copies of the existing job, done, with leases and measurements; and newer ones of another kernel.
HISTORY = """
insert into jobs (kernel, key, key_digest, space_digest, environment_id, tag, run, state, priority, baseline, seed, configs,
                  runner, device_class, events, finished_at)
  select kernel, key, sha256(('history ' || g)::bytea), space_digest, environment_id, 'history', '', 'done', 0, 0, 7, 800, runner,
         device_class, 1, now() from (select * from jobs order by id limit 1) j, generate_series(1, {jobs}) g;
insert into leases (job_id, stage, round, process, configs, remaining, state, epoch, device_class, priority, agent, device,
                    nonce, posts)
  select id, 'screen', 0, 0, int8multirange(int8range(g * 8, g * 8 + 8)), '{{}}', 'done', 1, device_class, 0, 'history',
         'cpu0', 'history', 1 from jobs, generate_series(0, {leases} - 1) g where tag = 'history';
insert into measurements (job_id, lease_id, epoch, seq, body_digest, config, stage, round, process, agent, device, outcome,
                          timer, regime, samples_us, baseline_us, ratio, device_us, late)
  select l.job_id, l.id, 1, s, sha256(int8send(s)), lower(l.configs) + s - 1, 'screen', 0, 0, l.agent, l.device, 'correct',
         'test', 'cold', '{{100.5,100.25}}', '{{100.5,100.25}}', 1, 300, false
  from leases l, generate_series(1, 3) s where l.agent = 'history' order by l.id, s;
insert into kernels (hash, name, language, manifest) select sha256('another'), 'another', language, manifest from kernels limit 1;
insert into jobs (kernel, key, key_digest, space_digest, environment_id, tag, run, state, priority, baseline, seed, configs,
                  runner, device_class, events, finished_at)
  select sha256('another'), key, sha256(int8send(g)), space_digest, environment_id, 'another', '', 'done', 0, 0, 7, 800, runner,
         device_class, 1, now() from (select * from jobs order by id limit 1) j, generate_series(1, {others}) g;
insert into winners (job_id, config, config_values, verdict)
  select id, 500, '{{"A":500}}', '{{}}' from jobs where tag in ('history', 'another');
"""


def plans_since(log, offset):
    """(statement's name, plan) of everything that servers ran: a statement's name and its text are in one line, its plan has
    the text."""
    with open(log, "rb") as file:
        file.seek(offset)
        text = file.read().decode(errors="replace")
    names = {statement: name for name, statement in re.findall(r" ms  (?:execute|bind|parse) ([a-z_]+): (.*)", text)}
    for found in re.finditer(r"plan:\n((?:\t.*\n)+)", text):
        explained = json.loads(found[1].replace("\n\t", "\n"))
        if explained["Query Text"] in names:
            yield names[explained["Query Text"]], explained["Plan"]


def scans(node):
    """(table or partition, how it was read, rows that were touched) of every scan that was executed."""
    table = node.get("Relation Name", "")
    if table.startswith(WATCHED) and node["Node Type"] != "ModifyTable" and node["Actual Loops"]:
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        yield table, f"{node['Node Type']} {node.get('Index Name', '')}".strip(), rows * node["Actual Loops"]
    for child in node.get("Plans", ()):
        yield from scans(child)


class Stale:
    """A server over tables whose statistics contain no open lease, and an agent that pulls leases. The plans of the server's
    statements are in PostgreSQL's log."""

    def __init__(self, start, database, postgres):
        self.start, self.database, self.postgres = start, database, postgres
        name = database.split("dbname=")[1]
        postgres.sql("; ".join(f"alter database {name} set {setting} = '{value}'" for setting, value in EXPLAIN.items()),
                     database="postgres")
        for _ in range(PARTITIONS - 1):
            self.sql("select measurement_partition_follow(max(end_job)) from measurement_partitions")
        self.sql("select setval(pg_get_serial_sequence('jobs', 'id'), 960)")  # jobs of several partitions
        partitions = self.sql("select partition from measurement_partitions").split()
        assert len(partitions) == PARTITIONS
        for table in ("jobs", "leases", *partitions):
            self.sql(f"alter table {table} set (autovacuum_enabled = off)")
        self.server = start(harness.Server, database, options=(*harness.UNHURRIED, "--poll-ms", "200", *harness.LEASES_OF_8))
        self.kernel, self.hand = register(self.server), Hand(self.server, "a")

    def sql(self, text):
        return self.postgres.sql(text, conninfo=self.database)

    def submit(self, keys, leases=LEASES_A_JOB, **more):
        answer = self.server.request("POST", "/v1/jobs", {"jobs": [
            {"kernel": self.kernel, "key": {"n": n}, "space": {"parameters": {"A": list(range(leases * 8))}},
             "environment": ENVIRONMENT, "budget": {"device_seconds": 100}} | more for n in keys]})
        assert answer.status == 201, answer
        return [job["job"] for job in answer.json["jobs"]]

    def cycle(self, **how):
        lease = self.hand.pull().json
        assert self.hand.renew(lease).status == 200
        first, *rest = configs_of(lease)
        assert self.hand.post(lease, configs=[first], done=not rest, **how).status == 200
        assert not rest or self.hand.post(lease, configs=rest, **how).status == 200
        return lease

    def log_size(self):
        return (self.postgres.folder / "log").stat().st_size


# Functions that, by their migrations, are inlined into the calling statement.
INLINED = {
    "rfc3339": "select rfc3339(at) from audit", "digest_text": "select digest_text(hash) from kernels",
    "is_open": "select from leases where is_open(state)",
    "token_is_live": "select token_is_live(t) from agents a left join tokens t on t.id = a.token_id",
    "signed_expiry": "select signed_expiry(expires_at) from channel_entries",
    "entry_signed": "select s.* from releases r left join channels c on c.release = r.digest cross join lateral"
                    " entry_signed(c.name, c.tag, c.regime, c.environment_digest, c.counter) s",
    "epoch_ms": "select epoch_ms(at) from audit", "job_configs": "select job_configs(j) from jobs j",
    "job_spending": "select b.* from jobs j cross join lateral job_spending(j.id) b",
    "job_progress": "select t.* from jobs j cross join lateral job_progress(j.id) t",
}


def quiet_time(stale):
    """Many jobs were done when the tables were analysed."""
    job = stale.submit([1])[0]
    assert stale.server.request("DELETE", f"/v1/jobs/{job}").status == 200
    for text in HISTORY.format(jobs=DONE_JOBS, leases=LEASES_A_JOB, others=OTHERS).split(";\n"):
        if text.strip():
            stale.sql(text)
    for table in WATCHED:
        stale.sql(f"vacuum analyze {table}")


def first_hour(stale):
    """There was nothing when the tables were analysed, and little when the server's connections kept their plans: PostgreSQL
    keeps one from the sixth run on."""
    for table in WATCHED:
        stale.sql(f"vacuum analyze {table}")
    stale.submit([1], leases=40)
    for _ in range(20):
        stale.cycle()


@pytest.mark.parametrize("prepare", [quiet_time, first_hour])
def test_statements_read_what_they_need_when_statistics_are_stale(prepare, start, database, postgres):
    stale = Stale(start, database, postgres)
    server = stale.server
    prepare(stale)
    began = stale.log_size()
    stale.submit(range(100, 100 + OPEN_JOBS))
    assert int(stale.sql("select count(*) from leases where state = 'open'")) >= OPEN_LEASES

    for _ in range(8):
        stale.cycle()
    for n in range(300, 308):  # each the first job at its time
        stale.submit([n], priority=n)
        lease = stale.cycle()
        server.get(f"/v1/jobs/{lease['job']}")
    other = Hand(server, "b", environment=ENVIRONMENT | {"gpu": "Another"})
    assert other.pull().status == 204, "no lease is for its hardware"
    stale.cycle(device_us=200_000_000)  # more than its job's budget
    lease = stale.hand.pull().json
    assert server.request("POST", f"/v1/leases/{lease['lease']}/release", {"epoch": lease["epoch"], "reason": "test"}).status == 200
    server.request("POST", "/v1/jobs", {"kernel": stale.kernel, "key": {"n": 110}, "environment": ENVIRONMENT, "priority": 5,
                                        "space": {"parameters": {"A": list(range(LEASES_A_JOB * 8))}},
                                        "budget": {"device_seconds": 100}})
    server.get("/v1/jobs")
    for job in (lease["job"], stale.sql("select min(id) from jobs")):
        server.get(f"/v1/jobs/{job}/measurements")
    Hand(server, "a", boot="b2", agent=stale.hand.id)
    assert server.request("DELETE", f"/v1/jobs/{lease['job']}").status == 200
    lease = stale.hand.pull().json
    stale.sql(f"update leases set expires_at = now() - interval '1 s' where id = {lease['lease']}")
    start(harness.Server, database, options=("--lease-ms", "100", "--heartbeat-ms", "600000"))  # which expires it
    wait_until(lambda: stale.sql(f"select state from leases where id = {lease['lease']}") == "open", 30, "the lease to expire")
    swept = {"jobs_ready_all", "leases_cancel_all_ended", "leases_unwanted"}  # by the housekeeper, in its own time
    wait_until(lambda: swept <= {name for name, _ in plans_since(postgres.folder / "log", began)}, 30, "the sweeps")

    ran, wrong, read_partitions = set(), [], {}
    for name, plan in plans_since(postgres.folder / "log", began):
        ran.add(name)
        blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        read = [scan for scan in scans(plan) if scan[2] > ROWS_MAX_OF.get(name, ROWS_MAX)]
        partitions = {scan[0] for scan in scans(plan) if scan[0].startswith("measurements_")}
        if name in OF_ONE_JOB:
            read_partitions.setdefault(name, set()).update(partitions)
        if name not in NOT_JUDGED and (read or blocks > BLOCKS_MAX or (name in OF_ONE_JOB and len(partitions) > 1)):
            wrong.append((name, read, f"{blocks} blocks", partitions))
    needed = {"lease_take", "lease_asker", "lease_lock", "lease_change_state", "lease_hardware_is_idle", "leases_split_choose",
              "lease_held", "leases_renew", "results_lock", "results_known", "results_insert", "leases_reclaim", "leases_expire",
              "leases_cancel_over_budget", "leases_cancel_ended", "jobs_ready", "jobs_raise_leases", "job_change_state",
              "job_get", "jobs_list", "job_measurements_list", "jobs_find", "winners_past"}
    needed |= {"lease_gather"} if prepare is quiet_time else set()
    assert needed <= ran, needed - ran
    assert not wrong, "\n".join(map(str, wrong))
    assert len(set().union(*read_partitions.values())) > 1, "the jobs are of several partitions"


SEARCHED, MANY = 20_000, 45_000  # jobs in which a request looks for a text, and all jobs
OLD = """
insert into jobs (kernel, key, key_digest, space_digest, environment_id, tag, run, state, priority, baseline, seed, configs,
                  runner, device_class, events, finished_at)
  select kernel, json_build_object('n', 1000 + g), sha256(int8send(g)), space_digest, environment_id, 'many', '', 'done', 0, 0, 7,
         800, runner, device_class, 1, now() from (select * from jobs order by id limit 1) j, generate_series(1, {many}) g
"""


def test_a_search_for_a_text_reads_a_bounded_part_of_the_jobs_and_finds_all(start, database, postgres):
    stale = Stale(start, database, postgres)
    oldest = stale.submit([9], leases=1, tag="many")
    stale.sql("vacuum analyze jobs")
    stale.sql(OLD.format(many=MANY))
    began = stale.log_size()
    for query in ("contains=n%3D9", "contains=n%3D9&tag=many"):
        for _ in range(4):
            assert stale.server.items(f"/v1/jobs?{query}")[-1]["job"] == oldest[0]
    page = stale.server.get("/v1/jobs?contains=no-job-has-it")
    assert page["items"] == [] and int(page["next"]) == int(oldest[0]) + MANY - SEARCHED + 1
    assert stale.server.items("/v1/jobs?contains=no-job-has-it") == []

    found = list(plans_since(postgres.folder / "log", began))
    read = [rows for name, plan in found if name == "jobs_list" for table, _, rows in scans(plan) if table == "jobs"]
    assert len(read) > 20 and max(read) <= SEARCHED, max(read)
    assert any(name == "jobs_search_end" for name, _ in found)
    queued = stale.server.get("/v1/jobs?contains=n%3D9&state=queued")["items"]
    assert [job["job"] for job in queued] == oldest, "it looks in jobs that the other filters leave"


def test_a_page_of_jobs_adds_up_no_others_where_the_plan_is_of_a_time_with_few(start, database, postgres):
    stale = Stale(start, database, postgres)
    stale.submit([9], leases=1)
    stale.server.get("/v1/jobs?limit=1")  # its plan is kept
    stale.sql(OLD.format(many=2000))
    began = stale.log_size()
    assert len(stale.server.get("/v1/jobs?limit=1")["items"]) == 1
    plan, = [plan for name, plan in plans_since(postgres.folder / "log", began) if name == "jobs_list"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 300, json.dumps(plan)


def searches(node):
    """In how many queues a grant searched for a lease to lock."""
    own = node["Actual Loops"] if node["Node Type"] == "LockRows" else 0
    return own + sum(map(searches, node.get("Plans", ())))


def test_a_grant_searches_no_queue_after_the_one_that_has_a_lease(start, database, postgres):
    """Otherwise it would lock a lease of each, which other grants then pass over."""
    stale = Stale(start, database, postgres)
    for priority in range(12):
        stale.submit([100 + priority], 2, priority=priority)
    began = stale.log_size()
    for _ in range(12):
        assert stale.hand.pull().status == 200
    found = [searches(plan) for name, plan in plans_since(postgres.folder / "log", began) if name == "lease_take"]
    assert len(found) == 12 and max(found) == 2, (found, "the second is searched when the first has just become empty")


def test_devices_and_their_leases_are_not_joined_by_nested_loops_where_there_were_none(database, postgres):
    statement = statements.read()["fleet_devices"]
    postgres.sql("vacuum analyze", conninfo=database)
    nulls = ", ".join(["null"] * len(statement.parameters))
    plan = postgres.sql(f"set plan_cache_mode = force_generic_plan; prepare it as {statement.sql}; explain execute it ({nulls})",
                        conninfo=database)
    assert plan.count("Full Join") == 3 and "Nested Loop Left Join" not in plan, plan


@pytest.mark.parametrize("function", INLINED)
def test_what_statements_share_is_planned_with_each_of_them(function, database, postgres):
    """A function that is called instead costs microseconds for each row, and hides its conditions from the planner."""
    plan = postgres.sql(f"explain (verbose) {INLINED[function]}", conninfo=database)
    assert function not in plan, plan
