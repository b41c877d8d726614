"""A database of commit 9b92b43d with running jobs is adopted while clients of that version continue to
work; other databases from before the base are refused. The dump and the state of the clients are in
tests/data/upgrade/, which make.py in that folder made with the old programs."""

import collections
import json
import os
import shutil
import subprocess

import hands
import harness
import pytest
from harness import SOURCE, wait_until, wavetune

OLD = SOURCE / "tests/data/upgrade/9b92b43d"


@pytest.fixture
def old(empty_database):
    """The database of the old server, as it was."""
    psql = [harness.postgres_bin() / "psql", empty_database, "-Xq", "-v", "ON_ERROR_STOP=1"]
    done = subprocess.run([*psql, "-f", OLD.with_suffix(".sql")], capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    return empty_database


def migrate(database, **environment):
    return subprocess.run([harness.BUILD / "wavetune-server", "migrate", "--database", database],
                          capture_output=True, text=True, timeout=600,
                          env={**os.environ, **environment})


class Known:
    """What the old clients knew, and the new server on their database."""

    def __init__(self, database, folder):
        self.__dict__.update(json.loads(OLD.with_suffix(".json").read_text()))
        self.server = harness.Server(database, folder, options=(*harness.UNHURRIED, *harness.LEASES_OF_8))
        self.token = self.tokens["agent"]

    def job(self, which):
        return self.server.get(f"/v1/jobs/{self.jobs[which]}")

    def hand(self, name):
        """One of the old agents: it does not enrol again."""
        hand = object.__new__(hands.Hand)
        hand.server, hand.boot, hand.id = self, self.hands[name]["boot"], self.hands[name]["agent"]
        hand.seqs = iter(range(100, 10000))
        return hand

    def request(self, method, path, body=None):
        """With the old agents' token."""
        return self.server.request(method, path, body, token=self.token)

    def get(self, path):
        return self.server.get(path)


@pytest.fixture
def known(old, tmp_path):
    known = Known(old, tmp_path)
    yield known
    known.server.stop()


# The schema

def schema_of(database):
    done = subprocess.run([harness.postgres_bin() / "pg_dump", "-s", database], capture_output=True,
                          text=True, check=True, timeout=600)
    return [line for line in done.stdout.splitlines() if not line.startswith("\\")]  # \restrict KEY


# The base counts as one.
ALL = 1 + len(list((harness.SOURCE / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql")))


def test_an_adopted_database_has_the_schema_of_a_new_one(postgres, old):
    """Names, the order of columns, comments, rights and all."""
    done = migrate(old)
    assert done.returncode == 0 and done.stdout == f"{ALL} migrations applied\n", done
    assert schema_of(old) == schema_of(postgres.database())
    noted = "select version, name, checksum from schema_migrations"
    assert postgres.sql(noted, conninfo=old) == postgres.sql(noted, conninfo=postgres.database())
    assert migrate(old).stdout == "0 migrations applied\n"


COLUMNS = ("select table_name, string_agg(quote_ident(column_name), ', ' order by ordinal_position)"
           " from information_schema.columns where table_schema = 'public' and table_name in"
           " (select relname from pg_class where relkind = 'r') group by 1 order by 1")
# What the base no longer has, and what it has otherwise.
GONE = {"build_caches", "evidence"}
OTHERWISE = {"builds": {"closure"}, "demand": {"policy_token", "policy_image"},
             "policy": {"is_only", "set_by_id"}}


def rows(postgres, database, table, names):
    """How many there are, and their digest."""
    return postgres.sql(f"select count(*), md5(string_agg(r::text, ' ' order by r::text)) from"
                        f" (select {names} from {table}) r", conninfo=database)


def test_every_row_is_kept(postgres, old):
    columns = {}
    for line in postgres.sql(COLUMNS, conninfo=old).splitlines():
        table, names = line.split("|")
        kept = [name for name in names.split(", ") if name not in OTHERWISE.get(table, ())]
        if table not in GONE | {"schema_migrations"}:
            columns[table] = ", ".join(kept)
    before = {table: rows(postgres, old, table, names) for table, names in columns.items()}
    assert sum(not each.startswith("0|") for each in before.values()) >= 45, before
    assert migrate(old).returncode == 0
    for table, names in columns.items():
        now = "policies" if table == "policy" else table
        assert rows(postgres, old, now, names) == before[table], table
    reporters = "select token, image like 'sha256:1%' from demand_reporters"
    assert postgres.sql(reporters, conninfo=old) == "program|t"


def test_a_measurement_gets_the_regime_of_its_job(postgres, old):
    """Of warm jobs, too, an agent that stated none was taken for cold."""
    postgres.sql("update jobs set regime = 'warm' where id in (select job_id from winners)",
                 conninfo=old)
    assert migrate(old).returncode == 0
    assert postgres.sql("select count(*) filter (where m.regime = 'warm') > 0, bool_and(m.regime ="
                        " j.regime) from measurements m join jobs j on j.id = m.job_id",
                        conninfo=old) == "t|t"


def test_several_servers_adopt_a_database_once(postgres, old):
    command = (harness.BUILD / "wavetune-server", "migrate", "--json", "--database", old)
    several = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    applied = [json.loads(one.communicate(timeout=600)[0])["applied"] for one in several]
    assert sum(applied) == ALL, "and none failed"


OLDER = "delete from schema_migrations where version > 27"
LATER = ("insert into schema_migrations (version, name, checksum)"
         " select v, 'later', 'sha256:' || v from generate_series(40, 48) v")
OTHER = "update schema_migrations set checksum = 'sha256:0' where version = 12"


@pytest.mark.parametrize("change, says", [
    (OLDER, ("schema version 27", "wavetune-server migrate", "commit 9b92b43d")),
    (LATER, ("schema version 48", "restore a backup", "9b92b43d", "empty database")),
    (OTHER, ("not by the migrations of commit 9b92b43d",))], ids=["older", "later", "other"])
def test_another_database_from_before_the_base_is_refused(postgres, old, tmp_path, change, says):
    postgres.sql(change, conninfo=old)
    before = schema_of(old)
    done = migrate(old)
    assert done.returncode == 1 and all(words in done.stderr for words in says), done
    assert schema_of(old) == before
    server = harness.Program([harness.BUILD / "wavetune-server", "serve", "--migrate", "--port",
                              "0", "--database", old], tmp_path)
    wait_until(lambda: all(words in server.messages for words in ("not ready", *says)), 20, "why")
    assert server.stop() == 0


def test_an_installation_without_the_file_that_adopts_changes_nothing(old, tmp_path):
    folder = tmp_path / "migrations"
    shutil.copytree(SOURCE / "migrations", folder, ignore=shutil.ignore_patterns("adopt"))
    before = schema_of(old)
    done = migrate(old, WAVETUNE_MIGRATIONS=str(folder))
    assert done.returncode == 1 and "adopt/0039.sql" in done.stderr, done
    assert schema_of(old) == before


# The clients

def test_jobs_releases_and_tokens_are_there(known):
    assert {which: known.job(which)["state"] for which in known.jobs} == {
        "done": "done", "failed": "failed", "cancelled": "cancelled", "running": "running", "queued": "queued"}
    assert known.job("done")["winner"]["config"] == 0
    assert known.job("queued")["priority"] == -5 and known.job("queued")["budget"] == {"device_seconds": 60}
    assert {job["regime"] for job in known.server.items("/v1/jobs")} == {"cold"}
    assert known.server.request("GET", f"/v1/releases/{known.release}").status == 200
    for role, token in known.tokens.items():
        answer = known.server.request("GET", "/v1/jobs", token=token)
        assert answer.status == (403 if role in ("agent", "demand", "enrol") else 200), (role, answer)


def test_what_was_served_is_served_byte_for_byte(known):
    for path, body in known.served.items():
        answer = known.server.request("GET", path, token=known.tokens["reader"])
        assert answer.status == 200 and answer.body.decode() == body, path


def test_the_policy_that_a_server_had_is_kept(known):
    """Also if the token that set it has ended since: it acts all the same."""
    one, = known.server.items("/v1/policies")
    assert (one["set_by"], one["mode"], one["channel"], one["acts"]) == (
        "gone", "suggest", "stable", True)


def test_older_agents_finish_their_leases_and_nothing_counts_twice(known):
    half, none = known.hand("half"), known.hand("none")
    for hand in (half, none):  # the new server has not looked them up yet
        wait_until(lambda hand=hand: hand.beat().status == 200, 20, "the older agent to be known")
    for hand, name in ((half, "half"), (none, "none")):
        lease, posted = known.hands[name]["lease"], known.hands[name]["posted"]
        assert hand.renew(lease).status == 200
        assert hand.post(lease, [c for c in hands.configs_of(lease) if c not in posted]).status == 200

    half.work()
    none.work()
    job = known.job("running")
    assert job["state"] == "done" and job["winner"]["config"] == 0, job
    screened = collections.Counter(m["config"] for m in known.server.items(f"/v1/jobs/{job['job']}/measurements")
                                   if m["stage"] == "screen" and not m["late"])
    assert screened == dict.fromkeys(range(24), 1)
    assert known.job("queued")["state"] == "done"


def test_results_from_before_the_upgrade_are_known_when_posted_again(known):
    """The answer was lost in the upgrade; the spool posts again, with the numbers that it had."""
    half = known.hand("half")
    lease, posted = known.hands["half"]["lease"], known.hands["half"]["posted"]
    half.seqs = iter(range(1, 100))
    assert half.post(lease, posted, done=False).json["known"] == len(posted)


def test_a_channel_from_before_the_upgrade_verifies_and_moves(known, tmp_path):
    (tmp_path / "old.pub").write_text(known.public_key)
    fetch = ("fetch", "--to", tmp_path / "cache", "--channel", "stable", "--format", "json", "--trusted-key", tmp_path / "old.pub",
             "--environment", json.dumps(hands.ENVIRONMENT))
    wavetune(known.server, *fetch)
    assert (tmp_path / "cache/current").resolve().name == known.release.removeprefix("sha256:")

    half = known.hand("half")
    for name in ("half", "none"):
        lease, posted = known.hands[name]["lease"], known.hands[name]["posted"]
        assert known.hand(name).post(lease, [c for c in hands.configs_of(lease) if c not in posted]).status == 200
    half.work()
    newer = known.server.request("POST", "/v1/releases", {"environment": hands.ENVIRONMENT}).json["release"]
    assert newer != known.release
    wavetune(None, "key", "new", tmp_path / "key")
    wavetune(known.server, "promote", newer, "stable", "--sign-key", tmp_path / "key")
    assert known.server.request("GET", "/v1/channels/stable").json["counter"] == known.channel["counter"] + 1
    refused = wavetune(known.server, *fetch, check=False)
    assert refused.returncode != 0 and "sign" in refused.stderr, refused
    wavetune(known.server, *fetch, "--trusted-key", tmp_path / "key.pub")
    assert (tmp_path / "cache/current").resolve().name == newer.removeprefix("sha256:")
