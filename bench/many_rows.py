#!/usr/bin/env python3
"""What the coordinator's work costs with few and with many measurements stored.

A real agent tunes one kernel on this machine. Two databases of one cluster start as copies of that one; SQL copies the job with all
that belongs to it (leases, measurements, objects, events, baselines, winner), under other keys, until one has 10^4 measurements and
the other 10^7. Each has its server. In each round, both in turn: 1,000 agents request leases of 8 configs, RATE a second, and post
their measurements; then, one request to each in turn: show (a job, and its measurements), publish (a release of 50 winners), and the
list of jobs. Times of statements, and the blocks of 8 KiB that they touched, are those of pg_stat_statements: blocks do not depend on
what else the machine does.

    bench/many_rows.py [ROUNDS [SECONDS [MANY [FEW [RATE]]]]]        default 9 rounds of 5 s, 10,000,000 and 10,000 measurements, 200/s

10^7 rows need about 8 GB in /tmp.
"""

import http.client
import json
import math
import pathlib
import random
import re
import statistics
import sys
import time

import driver
import harness

AGENTS = 1000
CONFIGS, LEASE_MOST = 128, 32  # of a job of the load, in leases of 8, or of more once the server knows how short these configs are
OF_TAG = 50  # jobs, which one release contains
BATCH = 2000  # jobs that are written in one transaction
SHOWS, PUBLISHES, LISTS = 40, 10, 20  # of a round
GOAL = 1.10
SHARE_MIN = 0.005  # statements with less of the time are not listed
STUDENT = {8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201, 14: 2.145, 19: 2.093}  # two-sided, 95 %, by degrees of freedom
SETTINGS = """
shared_preload_libraries = 'pg_stat_statements'
pg_stat_statements.track = top
max_wal_size = '4GB'
wal_level = 'minimal'
max_wal_senders = 0
"""

# Columns that a copy has for itself; all others are those of the original.
FILL = """
create function columns_of(name text, own text[]) returns text language sql as $$
  select string_agg(format('%I', attname), ', ' order by attnum) from pg_attribute
  where attrelid = name::regclass and attnum > 0 and not attisdropped and attname <> all (own)
$$;
create table original_job as select * from jobs where id = {job};
create table original_leases as select row_number() over (order by id) - 1 as n, * from leases where job_id = {job};
create table original_measurements as select row_number() over (order by id) - 1 as n, * from measurements where job_id = {job};
create table counts as
  select (select count(*) from original_leases) as leases, (select count(*) from original_measurements) as measurements,
    (select max(id) from leases) as last_lease, (select max(id) from measurements) as last_measurement;

create function list(name text, own text[], of text) returns text language sql as $$
  select string_agg(of || '.' || c, ', ') from unnest(string_to_array(columns_of(name, own), ', ')) c
$$;

-- The trigger on jobs makes their partitions. The other rows refer to rows that exist, which need no check.
create function fill_jobs(first int, last int) returns void language plpgsql as $$
begin
  execute format('insert into jobs (id, key, key_digest, tag, %1$s) overriding system value
    select {job} + g, json_build_object(''n'', 1000000 + g), sha256(int8send(g)), ''filled-'' || (g - 1) / {of_tag}, %1$s
    from original_job, generate_series($1, $2) g order by g', columns_of('jobs', '{{id,key,key_digest,tag}}')) using first, last;
end $$;

create function fill_others(first int, last int) returns void language plpgsql set session_replication_role = replica as $$
declare c record; table_name text;
begin
  select * into c from counts;
  execute format('insert into leases (id, job_id, %1$s) overriding system value
    select $3 + (g - 1)::bigint * $4 + n + 1, {job} + g, %1$s from original_leases, generate_series($1, $2) g order by g, n',
    columns_of('leases', '{{id,job_id}}')) using first, last, c.last_lease, c.leases;
  insert into measurement_objects select {job} + g, c.last_measurement + (g - 1)::bigint * c.measurements + m.n + 1, o.object
    from measurement_objects o join original_measurements m on m.id = o.measurement, generate_series(first, last) g
    where o.job_id = {job};
  execute format('insert into device_baselines (subject, lease_id, %1$s)
    select sha256(subject || int8send(g)), $3 + (g - 1)::bigint * $4 + l.n + 1, %2$s
    from device_baselines b join original_leases l on l.id = b.lease_id, generate_series($1, $2) g order by g, l.n',
    columns_of('device_baselines', '{{subject,lease_id}}'), list('device_baselines', '{{subject,lease_id}}', 'b'))
    using first, last, c.last_lease, c.leases;
  foreach table_name in array array['winners', 'job_events'] loop
    execute format('insert into %1$I (job_id, %2$s) select {job} + g, %2$s from %1$I, generate_series($1, $2) g where job_id = {job}',
                   table_name, columns_of(table_name, '{{job_id}}')) using first, last;
  end loop;
end $$;

-- Fills a partition without its indexes, which are made again afterwards: five times as fast.
create function fill_partition(partition text, first int, last int) returns void language plpgsql
  set maintenance_work_mem = '512MB' as $$
declare c record; place record; made text[]; statement text; key record;
begin
  select * into c from counts;
  select * into place from measurement_partitions p where p.partition = fill_partition.partition;
  first := greatest(first, place.first_job - {job});
  last := least(last, place.end_job - 1 - {job});
  execute format('alter table measurements detach partition %I', partition);
  for key in select conname, pg_get_constraintdef(oid) as text from pg_constraint
             where conrelid = partition::regclass and contype in ('p', 'u') loop
    made := made || format('alter table %I add constraint %I %s', partition, key.conname, key.text);
    execute format('alter table %I drop constraint %I', partition, key.conname);
  end loop;
  for key in select indexname, indexdef from pg_indexes where tablename = partition loop
    made := made || key.indexdef;
    execute format('drop index %I', key.indexname);
  end loop;
  if partition <> 'measurements_0' then
    execute format('truncate %I', partition); -- it is empty; what is written to a new file needs no log
  end if;
  execute format('insert into %1$I (id, job_id, lease_id, %2$s)
    select $3 + (g - 1)::bigint * $4 + m.n + 1, {job} + g, $5 + (g - 1)::bigint * $6 + l.n + 1, %3$s
    from generate_series($1, $2) g, original_measurements m join original_leases l on l.id = m.lease_id',
    partition, columns_of('measurements', '{{id,job_id,lease_id}}'), list('measurements', '{{id,job_id,lease_id}}', 'm'))
    using first, last, c.last_measurement, c.measurements, c.last_lease, c.leases;
  foreach statement in array made loop
    execute statement;
  end loop;
  execute format('alter table measurements attach partition %I for values from (%s) to (%s)', partition, place.first_job,
                 place.end_job);
end $$;
"""


def real_job(bench):
    """A database with a job that a real agent measured: (its connection string, the job)."""
    database = bench.postgres.database()
    server = bench.server(database)
    agent = bench.agent(server, options=("--device", "cpu0"))
    harness.wait_until(lambda: server.get("/v1/agents")["items"], 60, "the agent to enrol")
    for n in range(100003, 100013):  # until the machine is quiet enough for a decision
        done = harness.wavetune(server, "submit", harness.QUICK, "--key", f"n={n}", "--wait", "--json")
        job = json.loads(done.stdout)[0]
        if job["state"] == "done" and job["winner"]["verdict"]["verdict"] in ("FASTER", "SAME"):
            agent.stop(), server.stop()
            return database, int(job["job"])
    sys.exit(f"no job was decided on this machine: {job}")


def words(text):
    """A statement's words without its parameters and constants, in whose place pg_stat_statements writes $1, $2, …"""
    text = re.sub(r"'(?:[^']|'')*'|(?<![:\w]):\w+|\$\d+", " ", text)
    return [word for word in re.findall(r"[a-z_][a-z_0-9]*", text.lower()) if word not in ("null", "true", "false")]


def statement_names():
    """{the words of a statement: (its name, whether more words follow)}"""
    texts = {}
    for file in pathlib.Path(harness.BUILD / "statements/server").rglob("*.sql.c"):
        for name, text in re.findall(r'^const struct statement sql_\w+ = \{"(\w+)", "((?:[^"\\]|\\.)*)"\};$', file.read_text(), re.MULTILINE):
            text = text.replace('\\"', '"').replace("\\\\", "\\")
            beginning = text.split("{")[0]  # the columns of a record follow
            texts[" ".join(words(beginning))] = (name, beginning != text)
    return texts


class Side:
    def __init__(self, bench, original, job, measurements, names):
        self.bench, self.names, self.key = bench, names, 0
        bench.postgres.databases += 1
        self.name = f"t{bench.postgres.databases}"
        self.database = bench.postgres._copy(self.name, original.split("dbname=")[1])
        self.sql("create extension pg_stat_statements")
        self.fill(job, measurements)
        self.server = bench.server(self.database, options=harness.LEASES_OF_8)
        self.kernel = driver.register(self.server)
        self.agents = driver.enrol(self.server, AGENTS)
        self.filled = self.stored = self.count()
        self.web = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        self.means, self.times = [], {name: [] for name in ("show", "its measurements", "publish", "list of jobs")}
        self.loads = []

    def sql(self, text):
        return self.bench.postgres.sql(text, conninfo=self.database)

    def count(self):
        return int(self.sql("select count(*) from measurements"))

    def fill(self, job, measurements):
        self.sql(FILL.format(job=job, of_tag=OF_TAG))
        of_job = int(self.sql("select measurements from counts"))
        self.first, self.jobs = job, max(2 * OF_TAG, measurements // of_job) // OF_TAG * OF_TAG
        for first in range(1, self.jobs + 1, BATCH):
            self.sql(f"set synchronous_commit = off; select fill_jobs({first}, {min(first + BATCH - 1, self.jobs)})")
        self.sql(f"set synchronous_commit = off; select fill_others(1, {self.jobs})")
        for partition in self.sql(f"select partition from measurement_partitions where first_job <= {job + self.jobs}").split():
            self.sql(f"set synchronous_commit = off; select fill_partition('{partition}', 1, {self.jobs})")
        for table in ("jobs", "leases", "measurements"):
            self.sql(f"select setval(pg_get_serial_sequence('{table}', 'id'), (select max(id) from {table}))")
        self.sql("vacuum analyze"), self.sql("checkpoint")
        size = self.sql("select pg_size_pretty(pg_database_size(current_database()))")
        parts = self.sql("select count(*) from measurement_partitions")
        print(f"{self.name}: {self.jobs:,} jobs of {of_job} measurements, {size}, {parts} partitions", flush=True)

    def reset(self):
        self.sql("select pg_stat_statements_reset(0, (select oid from pg_database where datname = current_database()), 0)")

    def note(self):
        """Adds {statement: (mean in ms, runs, blocks that a run touched)} of the round."""
        rows = self.sql("select json_agg(json_build_array(query, total_exec_time, calls, shared_blks_hit + shared_blks_read))"
                        " from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = current_database()")
        found = {}
        for query, *figures in json.loads(rows):
            text = " ".join(words(query))
            name = next((n for t, (n, follows) in self.names.items() if t == text or follows and text.startswith(t)), None)
            if name:
                found[name] = [a + b for a, b in zip(figures, found.get(name, (0, 0, 0)))]
        self.means.append({name: (total / calls, calls, blocks / calls) for name, (total, calls, blocks) in found.items()})

    def load(self, seconds, rate):
        jobs = int(rate * seconds * LEASE_MOST / CONFIGS * 1.2) + 1
        driver.submit(self.server, self.kernel, [{"n": self.key + i + 1} for i in range(jobs)], driver.space_of(CONFIGS))
        self.key += jobs
        self.sql("checkpoint")
        figures = driver.run_load("lease_load", self.server, self.agents, AGENTS, seconds, rate)
        if figures["empty"]:
            sys.exit(f"the leases ran out: {figures}")
        self.loads.append(figures)

    def ask(self, what, method, path, body=None):
        began = time.perf_counter()
        self.web.request(method, path, body=body and json.dumps(body),
                         headers={"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"})
        answer = self.web.getresponse()
        text = answer.read()
        took = (time.perf_counter() - began) * 1e3
        assert answer.status in (200, 201), (path, answer.status, text[:300])
        self.times[what][-1].append(took)
        return json.loads(text)


def read_in_turn(sides, dice):
    for side in sides:
        for times in side.times.values():
            times.append([])
    for i in range(SHOWS):
        for side in sides if i % 2 else sides[::-1]:
            job = side.first + dice.randint(1, side.jobs)
            side.ask("show", "GET", f"/v1/jobs/{job}")
            side.ask("its measurements", "GET", f"/v1/jobs/{job}/measurements?limit=1000")
    environment = json.loads(sides[0].sql(f"select e.identity from jobs j join environments e on e.id = j.environment_id"
                                          f" where j.id = {sides[0].first}"))
    for i in range(PUBLISHES):  # of tags that both have, so that a release is new, or made again, on both sides
        tag = f"filled-{dice.randrange(min(side.jobs for side in sides) // OF_TAG)}"
        for side in sides if i % 2 else sides[::-1]:
            made = side.ask("publish", "POST", "/v1/releases", {"environment": environment, "tag": tag})
            assert len(made["included"]) == OF_TAG, made
    for i in range(LISTS):
        for side in sides if i % 2 else sides[::-1]:
            side.ask("list of jobs", "GET", "/v1/jobs?limit=100")


def remove_a_partition(side):
    """What retention costs: empties the largest partition, whose jobs ended 100 days ago. All of its winners are the newest of their
    key, so that their finals are copied."""
    first, end = map(int, side.sql("select first_job, end_job from measurement_partitions where exists (select from jobs where id >= end_job)"
                                   " order by pg_table_size(partition::regclass) desc limit 1").split("|"))
    side.sql(f"update jobs set created_at = created_at - interval '100 days', finished_at = finished_at - interval '100 days'"
             f" where id between {first} and {end}")
    rows = int(side.sql(f"select count(*) from measurements where job_id >= {first} and job_id < {end}"))
    began = time.perf_counter()
    jobs, size, kept = map(int, side.sql(f"select jobs, bytes, kept from measurements_remove({first}, 90)").split("|"))
    print(f"removing a partition of {jobs:,} jobs, {rows:,} measurements, {size / 2**20:,.0f} MiB: {time.perf_counter() - began:.1f} s;"
          f" {kept:,} measurements of finals were kept", flush=True)


def ratio(few, many):
    """The ratio of paired values as "1.02 x (0.97 to 1.07)", from the mean of its logarithm, and whether the goal is reached."""
    logs = [math.log(m / f) for f, m in zip(few, many)]
    mean = statistics.mean(logs)
    student = STUDENT[max(d for d in STUDENT if d <= len(logs) - 1)] if len(logs) > 8 else 12.7
    half = student * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0
    middle, low, high = (math.exp(v) for v in (mean, mean - half, mean + half))
    verdict = "" if high <= GOAL else " above the goal" if low > GOAL else " not decided" if middle <= GOAL else " above, not surely"
    return f"{middle:5.2f} x ({low:.2f} to {high:.2f}){verdict}"


def print_results(few, many):
    print(f"\n{many.filled:,} against {few.filled:,} measurements ({few.stored:,} after all rounds); goal {GOAL:.2f} x")
    for what, name in (("lease p50", "lease_p50_us"), ("lease p99", "lease_p99_us"), ("results p50", "results_p50_us"),
                       ("results p99", "results_p99_us")):
        a, b = ([load[name] / 1e3 for load in side.loads] for side in (few, many))
        print(f"  {what:32} {statistics.median(a):9.3f} {statistics.median(b):9.3f} ms  {ratio(a, b)}")
    for what in few.times:
        a, b = ([statistics.mean(times) for times in side.times[what]] for side in (few, many))
        print(f"  {what + ', mean':32} {statistics.median(a):9.3f} {statistics.median(b):9.3f} ms  {ratio(a, b)}")

    print("statements, mean of each round:")
    common = set.intersection(*(set(means) for side in (few, many) for means in side.means))
    time_of = {name: sum(means[name][0] * means[name][1] for means in many.means) for name in common}
    for name in sorted(common, key=time_of.get, reverse=True):
        if time_of[name] < SHARE_MIN * sum(time_of.values()):
            continue
        a, b = ([means[name][0] for means in side.means] for side in (few, many))
        runs = sum(means[name][1] for means in many.means)
        blocks = [sum(means[name][1] * means[name][2] for means in side.means) / sum(means[name][1] for means in side.means)
                  for side in (few, many)]
        print(f"  {name:32} {statistics.median(a):9.4f} {statistics.median(b):9.4f} ms  {ratio(a, b)}; {runs:,} runs of "
              f"{blocks[0]:.1f} and {blocks[1]:.1f} blocks")


def main():
    defaults = [9, 5, 10_000_000, 10_000, 200]
    rounds, seconds, many, few, rate = [int(argument) for argument in sys.argv[1:]] + defaults[len(sys.argv) - 1:]
    with driver.Bench(SETTINGS, shared_buffers="1GB") as bench:
        bench.print_machine()
        original, job = real_job(bench)
        names, dice = statement_names(), random.Random(1)
        sides = [Side(bench, original, job, measurements, names) for measurements in (few, many)]
        for i in range(rounds):
            for side in sides:
                side.reset()
            for side in sides if i % 2 else sides[::-1]:
                side.load(seconds, rate)
            read_in_turn(sides, dice)
            for side in sides:
                side.note()
            print(f"  round {i + 1}: lease p50 and p99 " + ", ".join(
                f"{side.loads[-1]['lease_p50_us'] / 1e3:.2f} and {side.loads[-1]['lease_p99_us'] / 1e3:.2f} ms" for side in sides), flush=True)
        bench.print_machine()
        sides[0].stored = sides[0].count()
        print_results(*sides)
        remove_a_partition(sides[1])


main()
