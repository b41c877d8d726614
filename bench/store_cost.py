#!/usr/bin/env python3
"""What PostgreSQL itself needs to store a measurement: CPU of one backend for each row of the table `measurements`, without a
server and without a client. It is the floor under every figure of measurements stored each second.

    bench/store_cost.py [STATEMENTS [ROUNDS]]        default 400 statements of 125 rows, 5 rounds

One session inserts the rows of whole leases in a loop; its CPU is read from /proc by PostgreSQL. The table is
measured as the migrations leave it, without its CHECK constraints, without each of its indexes, and with a foreign key to its
lease, in turn in each round, and emptied between.
"""

import os
import sys

import driver

ROWS = 125  # of one post
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
FOREIGN_KEY = "add constraint lease_exists foreign key (lease_id) references leases (id)"

# The CPU time of this backend in clock ticks: the 14th and 15th fields of its stat, counted behind the program's name.
CPU_TICKS = """
create function cpu_ticks() returns bigint language sql as $$
  select f[12]::bigint + f[13]::bigint
  from (select string_to_array(substring(pg_read_file('/proc/self/stat') from '\\) (.*)'), ' ') as f) s
$$;
"""

# A row as a device posts it: 12 pairs of samples of a config that is correct.
STORE = """
create function store(statements int, per int) returns void language plpgsql as $$
declare job bigint := (select min(job_id) from leases);
  lease bigint;
begin
  for lease in select id from leases order by id limit statements loop
    insert into measurements (job_id, lease_id, epoch, seq, body_digest, config, stage, round, process, agent, device, outcome,
                              timer, regime, samples_us, baseline_us, ratio, clock_mhz, device_us, late)
    select job, lease, 1, n, sha256(int8send(lease * per + n)), lease * per + n, 'screen', 0, 0, 'bench-agent', 'gpu0', 'correct',
           'event', 'cold', array_fill(100.5::real, array[12]), array_fill(101.5::real, array[12]), 0.99, 2100, 30000, false
    from generate_series(1, per) n;
  end loop;
end $$;
"""


class Table:
    """The table `measurements` of a fresh database, with one lease for each statement."""

    def __init__(self, bench, statements):
        self.bench, self.statements = bench, statements
        server = bench.server()
        self.database = server.database
        kernel = driver.register(server)
        space = {"parameters": {"P": list(range(8))}, "default": {"P": 0}}
        driver.submit(server, kernel, [{"n": 1}], space)
        server.stop()
        self.sql(CPU_TICKS + STORE)
        self.sql(f"insert into leases (job_id, stage, round, process, configs, remaining, device_class, priority) select job_id, "
                 f"stage, round, process, configs, remaining, device_class, priority from (select * from leases limit 1) l, "
                 f"generate_series(1, {statements})")

    def sql(self, text):
        return self.bench.postgres.sql(text, conninfo=self.database)

    def row_us(self, change, back):
        """Microseconds of CPU a row while the table is changed in this way."""
        self.sql(f"truncate measurements cascade; {change}")
        before, after = (int(line) for line in self.sql(
            f"select cpu_ticks(); select from store({self.statements}, {ROWS}); select cpu_ticks()").split())
        self.sql(f"truncate measurements cascade; {back}")
        return (after - before) / TICKS_PER_SECOND * 1e6 / (self.statements * ROWS)


def variants(table):
    """What is changed -> (the statement that changes it, the one that undoes it)."""
    found = {"as the migrations leave it": ("", ""),
             "with a key to its lease": (f"alter table measurements {FOREIGN_KEY}",
                                              "alter table measurements drop constraint lease_exists")}
    checks = [line.split("|") for line in table.sql(
        "select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'measurements'::regclass and contype = 'c'"
        " order by conname").splitlines()]
    found["without its checks"] = (
        "".join(f"alter table measurements drop constraint {name}; " for name, _ in checks),
        "".join(f"alter table measurements add constraint {name} {text}; " for name, text in checks))
    # Those of the whole table, and the key that each partition has for itself.
    for name, text, of in (line.split("|") for line in table.sql(
            "select indexname, indexdef, tablename from pg_indexes where tablename = 'measurements' or indexname ="
            " 'measurements_0_lease_id_epoch_seq_key' order by indexname").splitlines()):
        is_key = table.sql(f"select pg_get_constraintdef(oid) from pg_constraint where conname = '{name}'")
        found[f"without the index {name}"] = (
            (f"alter table {of} drop constraint {name} cascade", f"alter table {of} add constraint {name} {is_key}")
            if is_key else (f"drop index {name}", text.replace(" ON ONLY ", " ON ")))
    return found


def main():
    statements = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with driver.Bench() as bench:
        bench.print_machine()
        table = Table(bench, statements)
        changes = variants(table)
        times = {name: [] for name in changes}
        for _ in range(rounds):
            for name, (change, back) in changes.items():
                times[name].append(table.row_us(change, back))
        for name, us in times.items():
            print(f"{name}: {driver.spread(us, 1)} us of CPU a row", flush=True)


main()
