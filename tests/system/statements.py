"""The server's statements (its .sql files), and sessions that run them step by step."""

import os
import re
import select
import subprocess

import harness

SERVER = harness.SOURCE / "server"
# COLUMN:ELEMENT OF ITS ARRAY, and :TYPE OF THE COLUMN where that is another: of the columns with which the server completes a
# statement (server/db/db_record.h), enough for any row.
COLUMNS = {
    "results_insert": "seq:bigint config:bigint round:int process:int outcome:text:outcome samples_us:text:real[] "
                      "baseline_us:text:real[]",
    "jobs_insert": "kernel:bytea key_digest:bytea space_digest:bytea tag:text run:text regime:text purpose:text is_plain:boolean "
                   "key:text:json priority:bigint build:bytea device_class:bytea seed:bigint baseline:bigint baseline_from:text "
                   "default_config:bigint configs:bigint config_us:bigint final_devices:bigint retry_of:bigint",
}
PARAMETER = re.compile(r"(?<!:):([a-z]\w*)")
WRITE = re.compile(r"\b(?:INSERT INTO|DELETE FROM|(?<!FOR )(?<!KEY )(?<!DO )UPDATE)\s+(\w+)(?:\s+(?:AS\s+)?\w+)?\s*(?=\(|\s)")


def completed(name, sql):
    columns = [column.split(":") for column in COLUMNS.get(name, "").split()]
    for placeholder, texts in (("{columns}", (column for column, *_ in columns)),
                               ("{arrays}", (f":{column}::{element}[]" for column, element, *_ in columns)),
                               ("{values}", ("::".join([column, *cast]) for column, _, *cast in columns))):
        sql = sql.replace(placeholder, ", ".join(texts))
    return sql


class Statement:
    def __init__(self, path, name, text):
        self.path, self.name = path, name
        # Leases of configs are in two folders; of tasks.sql the tables are those of other subjects.
        self.subject = {"leases.sql": "lease", "tasks.sql": "task"}.get(path.name, path.relative_to(SERVER).parts[0])
        sql = re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).strip().rstrip(";")
        sql = completed(name, sql).replace("{table}", "captured_launches")  # of the tables of tasks, one
        self.writes = {table for table in WRITE.findall(sql) if table not in ("OF", "SET")}
        self.locks = bool(re.search(r"\bFOR (NO KEY )?(UPDATE|SHARE)\b", sql))
        self.parameters = list(dict.fromkeys(PARAMETER.findall(sql)))
        self.sql = PARAMETER.sub(lambda found: f"${self.parameters.index(found[1]) + 1}", sql)


def read():
    """All statements by their names."""
    found = {}
    for path in sorted(SERVER.rglob("*.sql")):
        parts = re.split(r"^-- name: (\w+)\n", path.read_text(), flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2]):
            found[name] = Statement(path, name, text)
    return found


def literal(value):
    """SQL of a parameter: a list is an array, text as the server binds it."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        value = "{" + ",".join("NULL" if v is None else '"' + text_of(v).replace("\\", "\\\\").replace('"', '\\"') + '"' for v in value) + "}"
    return "'" + text_of(value).replace("'", "''") + "'"


def text_of(value):
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value).lower() if isinstance(value, bool) else str(value)


class Failed(Exception):
    def __init__(self, state, message):
        super().__init__(f"{state}: {message}")
        self.state = state


class Session:
    """A psql whose statements are begun and finished apart, as one may wait for a lock."""

    def __init__(self, database, statements):
        self.statements, self.prepared = statements, set()
        self.process = subprocess.Popen(
            [str(harness.postgres_bin() / "psql"), database, "-XAq", "-P", "footer=off", "-F", "\x1f", "-R", "\x1e"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0)
        self.read = b""
        # Who waits for whom is looked at by the test: a deadlock need not wait for the default of a second.
        self.run_text("set deadlock_timeout = '20ms'")
        self.pid = self.run_text("select pg_backend_pid() as pid")[0]["pid"]

    def stop_on_errors(self):
        """For what must not fail: psql ends then, also in the middle of several statements."""
        self.write("\\set ON_ERROR_STOP on\n")

    def write(self, text):
        self.process.stdin.write(text.encode())

    def begin_text(self, text):
        self.write(f"{text};\n\\echo \x02:SQLSTATE\n")

    def begin(self, name, parameters):
        """Begins a statement of the server with its parameters."""
        statement = self.statements[name]
        assert set(parameters) == set(statement.parameters), (name, set(parameters) ^ set(statement.parameters))
        if name not in self.prepared:
            self.prepared.add(name)
            self.write(f"prepare {name} as {statement.sql};\n")
        arguments = ", ".join(literal(parameters[p]) for p in statement.parameters)
        self.begin_text(f"execute {name}" + (f" ({arguments})" if arguments else ""))

    def is_done(self, seconds=0.0):
        """Whether what was begun has ended; waits at most so long."""
        while not re.search(rb"\x02\w{5}\n", self.read):
            if not select.select([self.process.stdout], [], [], seconds)[0]:
                return False
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            assert chunk, self.read
            self.read += chunk
        return True

    def finish(self):
        """The rows of what was begun, once it has ended; raises Failed."""
        assert self.is_done(60 * harness.PATIENCE), "a statement does not end"
        text, state = self.read.decode().split("\x02", 1)
        state, self.read = state.strip(), b""
        if state != "00000":
            raise Failed(state, text.strip())
        head, *rows = text.strip("\n").split("\x1e")
        return [dict(zip(head.split("\x1f"), row.split("\x1f"))) for row in rows]

    def run_text(self, text):
        self.begin_text(text)
        return self.finish()

    def close(self):
        self.process.stdin.close()
        self.process.wait(60 * harness.PATIENCE)
