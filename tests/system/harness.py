"""Helpers of system tests: a real PostgreSQL, real servers, real agents, the real command line.

Everything listens on loopback or on sockets in a temporary folder, and the helpers end only processes that they started, by id.
$WAVETUNE_BUILD names the build folder whose programs are tested (default build/dev).
"""

import ctypes
import functools
import glob
import http.client
import http.server
import json
import os
import pathlib
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("WAVETUNE_BUILD", SOURCE / "build/dev"))
DATA = SOURCE / "tests/data"
KERNELS = SOURCE / "kernels"
QUICK = SOURCE / "tests/data/kernels/quick"  # 49 configs, 5 compiles, one best
# For a server whose agents the test plays: they send no renewals or heartbeats, and no lease expires during a pause.
UNHURRIED = ("--lease-ms", "600000", "--heartbeat-ms", "600000")
LEASES_OF_8 = ("--lease-target-ms", "240")  # for a server: configs of a kernel that was never measured count 30 ms each
os.environ.setdefault("WAVETUNE_SHARE_DEVICE", "1")  # agents of several tests, and of one, work at the same time
MISBEHAVING = SOURCE / "tests/data/kernels/misbehaving"
# The limits of tests are ample for an idle machine; a loaded one may need several times as long.
PATIENCE = 5
# `fetch` gives up after two seconds, to delay no start; in tests it must not give up on a slow machine.
os.environ.setdefault("WAVETUNE_BUDGET_MS", "300000")
SESSIONS_MAX = 4


def wait_until(condition, seconds=30, what="the condition"):
    """Polls until `condition()` is true and returns its value; fails with `what` after `seconds`, and PATIENCE. The condition
    must stay true: a test never has to look at the right moment."""
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {seconds} s without success for {what}")


def postgres_bin():
    """The folder of PostgreSQL's programs: $WAVETUNE_POSTGRES_BIN, or that of Debian's newest package, or of the one in PATH."""
    if "WAVETUNE_POSTGRES_BIN" in os.environ:
        return pathlib.Path(os.environ["WAVETUNE_POSTGRES_BIN"])
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if found:
        return pathlib.Path(found[-1]).parent
    return pathlib.Path(shutil.which("initdb")).parent


def scratch():
    """A folder in memory if there is room: copying and removing a database is ten times slower on a disk."""
    memory = "/dev/shm"
    return memory if os.path.isdir(memory) and shutil.disk_usage(memory).free > 4 << 30 else "/tmp"


class Postgres:
    """One private cluster; PostgreSQL refuses root, so root runs it as the user postgres. Without `durable` it survives a
    kill of its processes, not of the machine, and a database is made ten times as fast: for tests, not for benchmarks.
    `variables`: NAME=VALUE of its environment."""

    tokens = {}  # of databases that are copies of the migrated one, by connection string: the secret of an admin's token

    def __init__(self, durable=True, shared_buffers="64MB", variables=()):
        self.durable, self.shared_buffers, self.variables = durable, shared_buffers, variables
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-pg-", dir="/tmp" if durable else scratch()))
        self.user = None
        if os.geteuid() == 0:
            self.user = pwd.getpwnam("nobody" if "WAVETUNE_POSTGRES_BIN" in os.environ else "postgres")
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.process = None
        self.databases = 0
        self._make_cluster()
        self.start()

    def _make_cluster(self):
        """A copy of a cluster that is made once for each build: with a migrated database, and an admin's token in it."""
        first = BUILD / f"postgres-{postgres_bin().parent.name}-{(BUILD / 'wavetune-server').stat().st_mtime_ns}"
        if not first.exists():
            self._run("initdb", "-D", f"{self.folder}/data", "--no-sync", "--no-instructions", "-A", "trust", "-U", "postgres",
                      "-E", "UTF8", "--locale=C")
            self.start()
            database = self._copy("migrated", "template1")
            migrate(database)
            (self.folder / "data/admin-token").write_text(make_token(database, "admin-0", "admin"))
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60 * PATIENCE)
            mine = f"{first}-{os.getpid()}"
            subprocess.run(["cp", "-a", f"{self.folder}/data", mine], check=True)
            try:
                os.rename(mine, first)
            except OSError:  # another test has made it meanwhile
                shutil.rmtree(mine)
            shutil.rmtree(self.folder / "data")
        subprocess.run(["cp", "-a", first, f"{self.folder}/data"], check=True)
        self.token = (first / "admin-token").read_text()

    def _command(self, program, *arguments):
        command = ["env", *self.variables, str(postgres_bin() / program), *arguments]
        if self.user:
            command = ["setpriv", f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups", "env",
                       f"HOME={self.folder}", *command]
        return command

    def _run(self, program, *arguments):
        subprocess.run(self._command(program, *arguments), check=True, capture_output=True, timeout=600)

    def start(self):
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            self._command("postgres", "-D", f"{self.folder}/data", "-k", str(self.folder), "-c", "listen_addresses=",
                          "-c", f"fsync={'on' if self.durable else 'off'}", "-c", "max_connections=200", "-c",
                          "log_statement=none", "-c", f"shared_buffers={self.shared_buffers}"),
            stdout=log, stderr=log, cwd="/")
        wait_until(lambda: self.sql("select 1", database="postgres", check=False) == "1", 20, "PostgreSQL to answer")

    def kill(self):
        """As a power cut: SIGQUIT is PostgreSQL's immediate shutdown (kill -9 would leave its shared memory)."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(20 * PATIENCE)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def database(self, migrated=True):
        """The connection string of a new database: migrated, or empty."""
        self.databases += 1
        made = self._copy(f"t{self.databases}", "migrated" if migrated else "template1")
        if migrated:
            Postgres.tokens[made] = self.token
        return made

    def _copy(self, name, template):
        """By copying files, which is several times as fast as through the log. Again while a connection to the template, whose
        program has ended, has not noticed that yet."""
        def is_made():
            try:
                self.sql(f"create database {name} template {template} strategy file_copy", database="postgres")
                return True
            except AssertionError as error:
                if "is being accessed by other users" not in str(error):
                    raise

        wait_until(is_made, 30, f"the connections to {template} to end")
        return f"host={self.folder} user=postgres dbname={name}"

    def sql(self, text, database=None, conninfo=None, check=True):
        """Runs SQL and returns its rows, columns separated by |. Again where it was ended, and so undone, for a deadlock with a
        server that looks after its tables: a TRUNCATE locks many."""
        conninfo = conninfo or f"host={self.folder} user=postgres dbname={database}"
        error = "deadlock detected"
        while error and "deadlock detected" in error:
            # What sets something for a session gets one of its own.
            run = functools.partial(by_psql, conninfo) if LIBPQ is None else \
                (Session if text.startswith("set ") else session)(conninfo).run
            error, rows = run(text)
        assert not (check and error), error
        return rows


class Session:
    """A connection to PostgreSQL by libpq, of one thread."""

    def __init__(self, conninfo):
        self.connection = LIBPQ.PQconnectdb(conninfo.encode())
        weakref.finalize(self, LIBPQ.PQfinish, self.connection)

    def is_usable(self):
        """Whether it is connected, and PostgreSQL did not close it meanwhile: it sends nothing unasked but its end."""
        return LIBPQ.PQstatus(self.connection) == 0 and not select.select([LIBPQ.PQsocket(self.connection)], [], [], 0)[0]

    def run(self, text):
        """(what went wrong or None, the rows of all statements)."""
        lines, error = [], None
        if LIBPQ.PQsendQuery(self.connection, text.encode()) == 0:
            error = LIBPQ.PQerrorMessage(self.connection).decode()
        while result := LIBPQ.PQgetResult(self.connection):
            columns = range(LIBPQ.PQnfields(result))
            lines += ["|".join(LIBPQ.PQgetvalue(result, row, column).decode() for column in columns)
                      for row in range(LIBPQ.PQntuples(result))]
            error = LIBPQ.PQresultErrorMessage(result).decode() or error
            LIBPQ.PQclear(result)
        return error, "\n".join(lines).strip()


def by_psql(conninfo, text):
    """As Session.run, where a bundle has libraries for its own programs alone (bench/bare_machine.sh)."""
    done = subprocess.run([str(postgres_bin() / "psql"), conninfo, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text],
                          capture_output=True, text=True, timeout=600)
    return done.stderr if done.returncode else None, done.stdout.strip()


def load_libpq():
    """None: this machine has none."""
    try:
        library, of = ctypes.CDLL("libpq.so.5"), ctypes.c_void_p
    except OSError:
        return None
    for name, result, *arguments in (
            ("PQconnectdb", of, ctypes.c_char_p), ("PQfinish", None, of), ("PQstatus", ctypes.c_int, of), ("PQsocket", ctypes.c_int, of),
            ("PQerrorMessage", ctypes.c_char_p, of), ("PQsendQuery", ctypes.c_int, of, ctypes.c_char_p), ("PQgetResult", of, of),
            ("PQresultErrorMessage", ctypes.c_char_p, of), ("PQntuples", ctypes.c_int, of), ("PQnfields", ctypes.c_int, of),
            ("PQgetvalue", ctypes.c_char_p, of, ctypes.c_int, ctypes.c_int), ("PQclear", None, of)):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


LIBPQ = load_libpq()
SESSIONS = threading.local()


def session(conninfo):
    """This thread's connection, kept from one statement to the next: a psql and a new backend for each would take a tenth of the
    tests' time. Of the last few databases only."""
    kept = SESSIONS.__dict__
    found = kept.pop(conninfo, None)
    if found is None or not found.is_usable():
        found = Session(conninfo)
    kept[conninfo] = found
    while len(kept) > SESSIONS_MAX:
        del kept[next(iter(kept))]
    return found


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


def blocks(pid, signal_number):
    """Whether the first thread of a process blocks a signal; of one that has ended, no."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")]
    return any(int(mask, 16) >> (signal_number - 1) & 1 for mask in masks)


class Program:
    """A program started in the background, with its output in files."""

    def __init__(self, arguments, folder, environment=None, cwd=None):
        self.log = open(folder / f"{pathlib.Path(arguments[0]).name}-{time.monotonic_ns()}.log", "w+")
        self.out = open(f"{self.log.name}.out", "w+")
        full = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen([str(a) for a in arguments], stdout=self.out, stderr=self.log, env=full,
                                        stdin=subprocess.DEVNULL, cwd=cwd)

    @property
    def output(self):
        return pathlib.Path(self.out.name).read_text()

    @property
    def messages(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def blocks(self, signal_number):
        return blocks(self.process.pid, signal_number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20 * PATIENCE)

    def wait(self, seconds=30):
        """Its exit status, once it ended by itself."""
        return self.process.wait(seconds * PATIENCE)

    def stop(self, seconds=20):
        """Sends SIGTERM and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"did not stop within {seconds} s; its log ends:\n{self.messages[-3000:]}")
        return self.process.returncode


class Server(Program):
    """`wavetune-server serve` on a database, with an admin token made for it."""

    PROGRAM = "wavetune-server"  # of the build

    def __init__(self, database, folder, port=0, options=(), environment=None):
        self.database = database
        self.folder = folder
        self.token = Postgres.tokens.get(database)
        if self.token is None:
            migrate(database)
            self.token = make_token(database, f"admin-{time.monotonic_ns()}", "admin")
        super().__init__([BUILD / self.PROGRAM, "serve", "--listen", "127.0.0.1", "--port", str(port), "--database",
                          database, *options], folder, environment)
        self.url = self._wait_ready()

    def _wait_ready(self):
        def line():
            assert self.process.poll() is None, f"the server ended:\n{self.messages[-3000:]}"
            return next((l for l in self.output.splitlines() if "http://" in l), None)

        url = wait_until(line, 30, "the server's ready line").split()[-1]
        self.url = url
        wait_until(lambda: self.request("GET", "/readyz").status == 200, 20, "/readyz")
        return url

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def request(self, method, path, body=None, token="admin", headers=None, timeout=300):
        """`body`: bytes as they are, anything else as JSON. `token`: "admin" for this server's, None for none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = dict(headers or {})
        if token:
            headers["Authorization"] = f"Bearer {self.token if token == 'admin' else token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path, **more):
        """Tries again while the answer is 503: each thread of the server reconnects to its database by itself."""
        def ask():
            answer = self.request("GET", path, **more)
            return answer if answer.status != 503 else None

        answer = wait_until(ask, 30, f"another answer than 503 to {path}")
        assert answer.status == 200, (path, answer)
        return answer.json

    def items(self, path):
        """All items of a paged list."""
        items, after = [], ""
        while True:
            page = self.get(path + ("&" if "?" in path else "?") + "limit=1000" + after)
            items += page["items"]
            if not page["next"]:
                return items
            after = f"&after={page['next']}"


def migrate(database):
    done = subprocess.run([BUILD / "wavetune-server", "migrate", "--database", database], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def make_token(database, name, role, *options):
    done = subprocess.run([BUILD / "wavetune-server", "token", "make", name, "--database", database, "--role", role, *options],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


class Agent(Program):
    """`wavetune-agent run` with a state folder of its own."""

    def __init__(self, server, folder, name="node", options=(), environment=None, token=None):
        self.state = folder / f"agent-{name}"
        gates = folder / "gates"
        gates.mkdir(exist_ok=True)
        super().__init__([BUILD / "wavetune-agent", "run", "--url", server.url, "--state", self.state, "--name", name, *options],
                         folder, {"WAVETUNE_TOKEN": token or server.token, "WAVETUNE_WORKER_WRITES": str(gates),
                                  **(environment or {})})


def wavetune(server, *arguments, check=True, environment=None, timeout=600, token=None):
    """Runs the command line against a server and returns the finished process."""
    full = {**os.environ, **(environment or {})}
    if server:
        full.update(WAVETUNE_URL=server.url, WAVETUNE_TOKEN=token or server.token)
    done = subprocess.run([str(a) for a in (BUILD / "wavetune", *arguments)], capture_output=True, text=True, env=full,
                          timeout=timeout, stdin=subprocess.DEVNULL)
    if check:
        assert done.returncode == 0, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def small_kernel(folder, parameters=None, **members):
    """A copy of the quick kernel with a space of two configs, one far faster (or `parameters`): tuned in about a second.
    `members` replace members of its kernel.json."""
    shutil.copytree(QUICK, folder)
    space = {"parameters": parameters or {"REPEAT": [1, 64], "TURN": [0]}}
    (folder / "space.json").write_text(json.dumps(space))
    manifest = json.loads((folder / "kernel.json").read_text())
    (folder / "kernel.json").write_text(json.dumps({**manifest, **members}))
    return folder


def sleeping_kernel(folder, space=None):
    """small_kernel whose calls sleep 0.5 ms × REPEAT. What sleeps is woken in time on a machine whose CPUs are all busy, too,
    where a short run of the CPU may last ten times as long. Without `space`, 13 configs: one 0.5 ms, the others, the default
    among them, 8 ms."""
    small_kernel(folder)
    (folder / "space.json").write_text(json.dumps(space or {
        "parameters": {"TURN": list(range(12)), "REPEAT": [1, 16]}, "conditions": ["REPEAT > 1 or TURN == 0"],
        "default": {"TURN": 0, "REPEAT": 16}}))
    source = folder / "quick.c"
    source.write_text("#include <unistd.h>\n" + source.read_text().replace("  for (int repeat", "  usleep(500 * REPEAT);\n"
                                                                           "  for (int repeat", 1))
    return folder


class GatedKernel:
    """small_kernel whose calls (of the configs for which the C expression `when` is true; it may use REPEAT) make the file
    `reached` and wait until the file `gate` exists. So an agent with a long --config-timeout stays in the middle of a config as
    long as the test wants."""

    def __init__(self, folder, parameters=None, when="1"):
        self.folder = small_kernel(folder, parameters)
        gates = folder.parent / "gates"  # which workers of harness.Agent may write to
        gates.mkdir(exist_ok=True)
        self.reached, self.gate = gates / f"{folder.name}.reached", gates / f"{folder.name}.gate"
        source = folder / "quick.c"
        source.write_text("#include <fcntl.h>\n#include <unistd.h>\n" + source.read_text().replace("  for (int repeat", f"""
  static int is_open;
  if ({when} && !is_open) {{
    close(open("{self.reached}", O_CREAT | O_WRONLY, 0600));
    while (access("{self.gate}", F_OK) != 0)
      usleep(10000);
    is_open = 1;
  }}
  for (int repeat""", 1))

    def wait_reached(self):
        wait_until(self.reached.exists, 60, "the kernel to be called")

    def open(self):
        self.gate.touch()


class Loopback:
    """An HTTP server of a test on a free port, in a thread: `with` it. A subclass calls listen() with its handler."""

    def listen(self, handler):
        handler.log_message = lambda *_: None
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class FakeServer(Loopback):
    """A server with the answers of the test: `answer(method, path)` returns (status, body) or (status, body, headers); a body
    that is not bytes travels as JSON. `with_body`: answer gets the request's body too. `with FakeServer(answer) as fake: … fake.url … fake.requests`."""

    def __init__(self, answer, with_body=False):
        fake, self.requests = self, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                received = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.requests.append((self.command, self.path, dict(self.headers)))
                status, body, *headers = answer(self.command, self.path, *([received] if with_body else []))
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any

        self.listen(Handler)
        self.token = "wt_fake"


def on_terminal(arguments, environment=None, timeout=600):
    """Runs a program with stderr on a pseudo-terminal: (its exit code, stdout, what the terminal got)."""
    master, slave = os.openpty()
    process = subprocess.Popen([str(a) for a in arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave,
                               env={**os.environ, "TERM": "xterm", **(environment or {})})
    os.close(slave)
    shown = []

    def drain():
        try:
            while chunk := os.read(master, 65536):
                shown.append(chunk)
        except OSError:  # EIO: the other end is closed
            pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        out, _ = process.communicate(timeout=timeout)
    finally:
        process.kill()
        reader.join(60)
        os.close(master)
    return process.returncode, out.decode(), b"".join(shown).decode()
