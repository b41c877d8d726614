"""The audit log: the author of each row, a record of every write, and a serving role that cannot change the log."""

import datetime
import hashlib
import json
import subprocess

import hands
import harness
import pytest
from harness import make_token, wavetune

DIGEST = "sha256:" + "0" * 64
IMPORT = {"format": "dejavu", "environment": {"rocm": "6.4.1", "gpu": "MI300X", "arch": "gfx942"},
          "kernels": [{"manifest": {"name": "dejavu/x", "language": "external", "key": ["n"], "exports": {"dejavu": {}}},
                       "entries": [{"key": {"n": 1}, "config": {"BLOCK": 1}, "ms": [0.2]}]}]}
SPACE = {"parameters": {"A": [1]}}


class Caller:
    """Requests with one token, as hands.Hand and hands.register make them."""

    def __init__(self, server, token):
        self.server, self.token = server, token

    def request(self, method, path, body=None, **more):
        return self.server.request(method, path, body, **{"token": self.token} | more)


@pytest.fixture
def database(postgres):
    return postgres.database()


def callers(server):
    """A token of each role that writes, named after it."""
    options = {"publisher": ("--channel", "*")}
    return {role: Caller(server, make_token(server.database, role, role, *options.get(role, ())))
            for role in ("reader", "submitter", "builder", "publisher", "agent", "operator", "admin", "cache-writer")}


def audit(server, **filters):
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    return server.items(f"/v1/audit?{query}")


def write_everything(server):
    """Each kind of write once, by the role that is for it; returns the expected rows, oldest first."""
    by = callers(server)
    output = []

    def wrote(role, action, thing):
        output.append((role, action, thing))

    kernel = hands.register(by["submitter"])
    for data in (hands.SOURCE, hands.REFERENCE):
        wrote("submitter", "put-blob", "sha256:" + hashlib.sha256(data).hexdigest())
    wrote("submitter", "register", kernel)
    hand = hands.Hand(by["agent"], "node")
    wrote("agent", "enrol", hand.id)
    body = {"kernel": kernel, "key": {"n": 64}, "space": SPACE, "environment": hands.ENVIRONMENT}
    job = by["submitter"].request("POST", "/v1/jobs", body).json["job"]
    wrote("submitter", "submit", job)
    assert by["operator"].request("POST", "/v1/jobs", body | {"priority": 5}).json["created"] is False
    wrote("operator", "raise", job)
    again = by["operator"].request("POST", "/v1/jobs", body | {"run": "again", "purpose": "revalidate"}).json["job"]
    wrote("operator", "revalidate", again)
    assert by["operator"].request("DELETE", f"/v1/jobs/{again}").status == 200
    wrote("operator", "cancel", again)
    hand.work()
    assert server.get(f"/v1/jobs/{job}")["state"] == "done"

    release = by["publisher"].request("POST", "/v1/releases", {"environment": hands.ENVIRONMENT}).json["release"]
    wrote("publisher", "release", release)
    moved = by["publisher"].request("PUT", "/v1/channels/stable", {"release": release}, headers={"If-None-Match": "*"})
    assert moved.status == 200, moved
    wrote("publisher", "move", "stable")
    assert by["cache-writer"].request("POST", "/v1/imports", IMPORT).status == 201
    wrote("cache-writer", "import", "dejavu")
    for device, reason, action in ((None, "repair", "drain"), (None, None, "resume"), ("cpu0", "hot", "drain")):
        answer = by["operator"].request("POST", f"/v1/agents/{hand.id}/drain",
                                        {"reason": reason} | ({"device": device} if device else {}))
        assert answer.status == 200, answer
        wrote("operator", action, hand.id)
    declared = by["operator"].request("POST", "/v1/compatibilities",
                                      {"asked": {"rocm": "6.4.1"}, "served": {"rocm": "6.3.1"}, "reason": "tried"}).json["id"]
    wrote("operator", "declare", declared)
    assert by["operator"].request("DELETE", f"/v1/compatibilities/{declared}").status == 204
    wrote("operator", "withdraw", declared)
    assert by["admin"].request("POST", "/v1/tokens", {"name": "guest", "role": "reader"}).status == 201
    wrote("admin", "make-token", "guest")
    assert by["admin"].request("DELETE", "/v1/tokens/guest").status == 204
    wrote("admin", "revoke-token", "guest")
    stray = b"nothing refers to this"
    digest = "sha256:" + hashlib.sha256(stray).hexdigest()
    assert by["builder"].request("PUT", f"/v1/blobs/{digest}", stray).status == 201
    wrote("builder", "put-blob", digest)
    server.written = {"kernel": kernel, "job": job, "again": again, "release": release, "agent": hand.id, "hand": hand, "by": by}
    return output


def collect(server, postgres, owner=None):
    postgres.sql("update blobs set created_at = now() - interval '90 days'", conninfo=owner or server.database)
    answer = server.written["by"]["operator"].request("POST", "/v1/gc", {})
    assert answer.status == 200 and answer.json["files"]["n"] == 1, answer
    return ("operator", "collect", "older than 30 days")


def test_each_write_is_recorded_with_its_token(server, postgres):
    output = write_everything(server)
    output.append(collect(server, postgres))
    rows = [row for row in reversed(audit(server)) if row["token"] != "(command line)"]
    assert [(row["token"], row["action"], row["object"]) for row in rows] == output
    ids = {item["name"]: item["id"] for item in server.items("/v1/tokens")}
    for row in rows:
        assert (row["token_id"], row["role"], row["peer"]) == (ids[row["token"]], row["token"], "127.0.0.1"), row
    details = {(row["action"], row["object"]): row["detail"] for row in rows}
    written = server.written
    assert details["release", written["release"]] == {"tag": "default", "regime": "cold", "winners": 1}
    assert details["move", "stable"]["release"] == written["release"] and details["move", "stable"]["counter"] == 1
    assert details["submit", written["job"]] == {"kernel": written["kernel"], "priority": 0, "tag": "default"}
    assert details["raise", written["job"]] == {"priority": 5}
    assert details["drain", written["agent"]] == {"device": "cpu0", "reason": "hot"}
    assert details["collect", "older than 30 days"] == {"releases": 0, "files": 1, "demand": 0, "fetches": 0}
    assert details["make-token", "guest"] == {"role": "reader"}
    text = json.dumps(audit(server))
    assert "wt_" not in text and server.token not in text
    made = [row for row in audit(server, token="(command%20line)", object="publisher")]
    assert [(row["action"], row["token_id"], row["peer"], row["detail"]) for row in made] == [
        ("make-token", None, None, {"role": "publisher", "channels": ["*"]})]


def test_authors_are_shown_where_users_look(server):
    write_everything(server)
    written = server.written
    ids = {item["name"]: item["id"] for item in server.items("/v1/tokens")}

    def by(document, what):
        return document[what], document[f"{what}_id"]

    def one(path, member, value):
        return next(item for item in server.items(path) if item[member] == value)

    submitter, operator, publisher = (name and (name, ids[name]) for name in ("submitter", "operator", "publisher"))
    job = server.get(f"/v1/jobs/{written['job']}")
    assert by(job, "submitted_by") == submitter and by(job, "cancelled_by") == (None, None)
    cancelled = one("/v1/jobs", "job", written["again"])
    assert by(cancelled, "submitted_by") == by(cancelled, "cancelled_by") == operator
    assert by(server.get(f"/v1/kernels/{written['kernel']}"), "made_by") == submitter
    assert by(one("/v1/kernels", "name", "dejavu/x"), "made_by") == ("cache-writer", ids["cache-writer"])
    assert by(one("/v1/releases", "release", written["release"]), "made_by") == publisher
    entry = server.items("/v1/channels/stable/entries?gpu=Test%20CPU")[0]
    assert by(entry, "moved_by") == publisher
    assert by(server.items("/v1/imports")[0], "imported_by") == ("cache-writer", ids["cache-writer"])
    agent = server.items("/v1/agents")[0]
    assert by(agent, "drained_by") == (None, None) and by(agent["devices"][0], "drained_by") == operator
    guest = one("/v1/tokens", "name", "guest")
    assert by(guest, "made_by") == by(guest, "revoked_by") == ("admin", ids["admin"])
    assert by(one("/v1/tokens", "name", "operator"), "made_by") == ("(command line)", None)

    shown = wavetune(server, "show", written["again"], check=False).stdout
    assert "submitted by operator at 2" in shown and "cancelled by operator at 2" in shown
    assert "submitter" in next(l for l in wavetune(server, "jobs").stdout.splitlines() if l.split()[0] == written["job"])
    assert " publisher " in wavetune(server, "releases").stdout
    assert "registered 2" in (output := wavetune(server, "kernel", "show", written["kernel"]).stderr) and "by submitter" in output
    assert "drained: hot (by operator)" in wavetune(server, "agents", "-o", "wide").stdout
    assert "by (command line)" in wavetune(server, "token", "list").stdout


def test_a_write_that_is_refused_or_fails_or_changes_nothing_adds_no_row(server, postgres):
    write_everything(server)
    written, by = server.written, server.written["by"]
    before = len(audit(server))
    admin = by["admin"]
    for caller, method, path, body, status in [
            (by["reader"], "POST", "/v1/gc", {}, 403),
            (Caller(server, None), "POST", "/v1/gc", {}, 401),
            (admin, "POST", "/v1/gc", {}, 200),  # no file is old
            (admin, "POST", "/v1/gc", {"dry_run": True}, 200),
            (admin, "POST", "/v1/gc", {"keep_days": 0}, 422),
            (admin, "POST", "/v1/tokens", {"name": "reader", "role": "reader"}, 409),
            (admin, "DELETE", "/v1/tokens/nobody", None, 404),
            (admin, "POST", f"/v1/agents/{'0' * 32}/drain", {"reason": "x"}, 404),
            (admin, "POST", f"/v1/agents/{written['agent']}/drain", {"reason": "x", "device": "gpu7"}, 404),
            (admin, "DELETE", f"/v1/jobs/{written['job']}", None, 409),
            (admin, "DELETE", f"/v1/jobs/{written['again']}", None, 200),  # it is cancelled already
            (admin, "DELETE", "/v1/jobs/999999", None, 404),
            (admin, "DELETE", "/v1/compatibilities/999999", None, 404),
            (admin, "PUT", "/v1/channels/stable", {"release": DIGEST}, 422),
            (admin, "PUT", "/v1/channels/stable", {"release": written["release"], "counter": 9}, 412),
            (admin, "POST", "/v1/releases", {"environment": hands.ENVIRONMENT}, 200),  # it is known
            (admin, "POST", "/v1/imports", IMPORT, 200),
            (admin, "POST", "/v1/jobs", {"kernel": written["kernel"], "key": {"n": 64}, "space": SPACE,
                                         "environment": hands.ENVIRONMENT, "priority": 1}, 200),
            (admin, "POST", "/v1/jobs", {"kernel": DIGEST, "key": {"n": 64}, "space": SPACE,
                                         "environment": hands.ENVIRONMENT}, 422)]:
        answer = caller.request(method, path, body)
        assert answer.status == status, (method, path, answer)
    assert len(audit(server)) == before, audit(server)[:len(audit(server)) - before]


def test_a_write_whose_row_cannot_be_added_is_undone(server, postgres):
    """In one transaction: where the record cannot be made, nothing is written."""
    kernel = hands.register(server)
    hands.Hand(server, "node")
    postgres.sql("alter table audit add constraint nothing check (false) not valid", conninfo=server.database)
    data = b"not recorded"
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    job = {"kernel": kernel, "key": {"n": 64}, "space": SPACE, "environment": hands.ENVIRONMENT}
    agent = server.items("/v1/agents")[0]["agent"]
    for method, path, body in [("PUT", f"/v1/blobs/{digest}", data), ("POST", "/v1/jobs", job), ("POST", "/v1/imports", IMPORT),
                               ("POST", "/v1/tokens", {"name": "x", "role": "reader"}),
                               ("POST", f"/v1/agents/{agent}/drain", {"reason": "x"}),
                               ("POST", f"/v1/agents/{agent}/drain", {"reason": "x", "device": "cpu0"})]:
        assert server.request(method, path, body).status == 500, path
    assert server.request("GET", f"/v1/blobs/{digest}").status == 404
    assert server.items("/v1/jobs") == [] and server.items("/v1/imports") == []
    assert "x" not in {item["name"] for item in server.items("/v1/tokens")}
    agent = server.items("/v1/agents")[0]
    assert agent["drain_reason"] is None and agent["devices"][0]["drain_reason"] is None
    postgres.sql("alter table audit drop constraint nothing", conninfo=server.database)
    assert server.request("POST", "/v1/jobs", job).status == 201


def test_each_job_of_a_batch_has_its_author_and_audit_row(server, postgres):
    by = callers(server)
    kernel = hands.register(server)
    hands.Hand(server, "node")
    job = {"kernel": kernel, "space": SPACE, "environment": hands.ENVIRONMENT}
    answer = by["submitter"].request("POST", "/v1/jobs", {"jobs": [job | {"key": {"n": n}} for n in (1, 2, 1)]})
    jobs = [one["job"] for one in answer.json["jobs"]]
    assert jobs[0] == jobs[2] and len(set(jobs)) == 2
    assert sorted(row["object"] for row in audit(server, action="submit")) == sorted(set(jobs))
    assert {row["token"] for row in audit(server, action="submit")} == {"submitter"}


def test_the_command_line_lists_the_audit_log_with_filters(server, postgres):
    write_everything(server)

    def rows(*arguments):
        return json.loads(wavetune(server, "audit", "--json", *arguments).stdout)

    everything = rows("--limit", "1000000")
    assert everything == audit(server) and len(everything) > 20
    assert [row["id"] for row in everything] == sorted((row["id"] for row in everything), key=int, reverse=True)
    assert rows("--limit", "3") == everything[:3]
    assert {row["token"] for row in rows("--by", "publisher")} == {"publisher"}
    assert {row["action"] for row in rows("--action", "drain")} == {"drain"}
    assert {row["action"] for row in rows("--object", server.written["again"])} == {"revalidate", "cancel"}
    assert rows("--since", "1h", "--limit", "1000000") == everything and rows("--since", "2099-01-01T00:00:00Z") == []
    tomorrow = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    assert rows("--since", tomorrow.strftime("%Y-%m-%dT%H:%M:%SZ")) == []
    postgres.sql("alter table audit disable trigger all; update audit set at = at - interval '2 days' where action = 'submit';"
                 "alter table audit enable trigger all", conninfo=server.database)
    assert len(rows("--since", "1d", "--limit", "1000000")) == len(everything) - 1
    text = wavetune(server, "audit", "--action", "move").stdout
    assert "publisher" in text and "127.0.0.1" in text and "stable" in text
    assert wavetune(server, "audit", "--action", "dance", check=False).returncode == 4
    assert wavetune(server, "audit", "--since", "yesterday", check=False).returncode == 4
    refused = wavetune(server, "audit", check=False, token=server.written["by"]["submitter"].token)
    assert refused.returncode == 4 and "role operator or admin" in refused.stderr
    first = server.get("/v1/audit?limit=2")
    second = server.get(f"/v1/audit?limit=2&after={first['next']}")
    assert first["items"] + second["items"] == everything[:4]


def as_role(postgres, conninfo, sql):
    """What PostgreSQL answers; "" is success."""
    done = subprocess.run([str(harness.postgres_bin() / "psql"), conninfo, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql],
                          capture_output=True, text=True, timeout=600)
    return done.stderr.strip()


@pytest.fixture
def two_roles(postgres):
    """(the owner's connection string, the serving role's) of an empty database."""
    database = postgres.database(migrated=False)
    name = database.split("dbname=")[1]
    postgres.sql(f"create role owner_{name} login nosuperuser; create role serve_{name} login nosuperuser;"
                 f"alter database {name} owner to owner_{name}", database="postgres")
    return tuple(database.replace("user=postgres", f"user={role}_{name}") for role in ("owner", "serve"))


def migrate(conninfo, *options):
    return subprocess.run([harness.BUILD / "wavetune-server", "migrate", "--database", conninfo, *options],
                          capture_output=True, text=True, timeout=600)


def test_a_server_with_its_own_database_role_works_and_cannot_change_audit_rows(postgres, start, two_roles):
    owner, serving = two_roles
    owner_role, role = (conninfo.split("user=")[1].split()[0] for conninfo in (owner, serving))
    for _ in range(2):  # works a second time too
        done = migrate(owner, "--serve-role", role)
        assert done.returncode == 0, done.stderr
    server = start(harness.Server, serving, options=("--migrate", *harness.UNHURRIED, "--poll-ms", "200"))
    output = write_everything(server)
    output.append(collect(server, postgres, owner))
    written = server.written
    assert server.request("DELETE", f"/v1/jobs/{written['job']}").status == 409
    rows = [row for row in reversed(audit(server)) if row["token"] != "(command line)"]
    assert [(row["token"], row["action"], row["object"]) for row in rows] == output
    assert "permission denied" not in server.messages and " error " not in server.messages, server.messages

    before = postgres.sql("select md5(string_agg(a::text, ' ' order by id)) from audit a", conninfo=owner)
    for sql in ("update audit set token = 'x'", "delete from audit", "truncate audit", "drop table audit",
                "alter table audit rename to other", "alter table audit disable trigger all", "drop trigger "
                "audit_rows_do_not_change on audit", "alter table audit add column x int", f"grant delete on audit to {role} granted by {owner_role}",
                "create rule r as on insert to audit do instead nothing", "create index on audit (peer)",
                "insert into audit (id, token, role, action, object, detail) values (1, '', '', '', '', '{}')",
                "create or replace function append_only() returns trigger language plpgsql as 'begin return old; end'",
                "create table mine (a int)", "set session_replication_role = replica", "drop table jobs", "truncate tokens",
                "alter table tokens add column x int", f"alter table audit owner to {role}", "drop schema public cascade",
                "delete from schema_migrations", "update schema_migrations set checksum = ''",
                "insert into audit (token, role, action, object, detail) overriding system value select token, role, action,"
                " object, detail from audit on conflict (id) do update set token = 'x'"):
        message = as_role(postgres, serving, sql)
        assert message.startswith("ERROR"), (sql, message)
    assert postgres.sql("select md5(string_agg(a::text, ' ' order by id)) from audit a", conninfo=owner) == before
    assert as_role(postgres, owner, "update audit set token = 'x'").startswith("ERROR:  audit is append-only")
    assert as_role(postgres, owner, "delete from audit where at < now() + interval '1 day'") == "", "retention is the owner's"


def test_a_serving_role_without_the_right_to_migrate_waits_for_the_migration(postgres, start, two_roles):
    owner, serving = two_roles
    done = migrate(serving)
    assert done.returncode == 1 and "permission denied" in done.stderr, done.stderr
    assert migrate(owner).returncode == 0
    assert migrate(serving).returncode == 1, "it may read nothing yet"
    assert migrate(owner, "--serve-role", serving.split("user=")[1].split()[0]).returncode == 0
    assert migrate(serving).returncode == 0, "it has every right that it needs"


def test_a_serving_role_must_exist_and_not_own_the_tables(postgres, two_roles):
    owner, _ = two_roles
    for role, sentence in (("nobody_here", '"nobody_here"'),
                           (owner.split("user=")[1].split()[0], "owns the tables"), ("postgres", "owns the tables")):
        done = migrate(owner, "--serve-role", role)
        assert done.returncode == 1 and sentence in done.stderr, (role, done.stderr)
