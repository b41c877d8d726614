"""`wavetune-server dev` and `serve` as people start and stop them: Ctrl-C, another user, a kill, a second
server with the same folder."""

import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import types

import harness
import pytest
from harness import BUILD, wait_until

SERVER = BUILD / "wavetune-server"


@pytest.fixture(scope="module")
def place():
    """A folder that every user may write to and in which every user may read the programs."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="wt-dev-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def get(url, path, token=None):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=300)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    return harness.Answer(answer.status, dict(answer.getheaders()), answer.read())


class Dev(harness.Program):
    """`dev` on a folder, by this user or through `before` (a program that runs another)."""

    def __init__(self, folder, logs, *options, before=(), environment=None):
        self.folder = folder
        super().__init__([*before, SERVER, "dev", "--folder", folder, "--port", "0", *options], logs, environment)

    def ready(self):
        def facts():
            assert self.process.poll() is None, self.messages[-2000:]
            lines = [line.split(" ", 1) for line in self.output.splitlines()]
            return dict(lines) if [line[0] for line in lines] == ["url", "token", "folder", "database"] else None

        self.facts = wait_until(facts, 60, "the four lines of dev")
        return self.facts

    def request(self, path, token=True):
        answer = get(self.facts["url"], path, self.facts["token"] if token else None)
        return answer.status

    def postmaster(self):
        try:
            return int((self.folder / "data/postmaster.pid").read_text().split()[0])
        except FileNotFoundError:
            return None

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.wait(40)


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_dev_prints_what_a_shell_needs_and_ctrl_c_stops_it_and_its_postgres(place, tmp_path):
    dev = Dev(place / "a", tmp_path)
    facts = dev.ready()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", facts["url"]) and re.fullmatch(r"wt_[0-9a-f]{64}", facts["token"])
    assert dev.request("/v1/jobs") == 200 and dev.request("/v1/jobs", token=False) == 401
    postmaster = dev.postmaster()
    assert facts["token"] not in dev.messages
    assert dev.interrupt() == 0
    assert is_gone(postmaster) and dev.postmaster() is None
    with pytest.raises(ConnectionRefusedError):
        dev.request("/healthz")


def test_the_first_command_of_start_tuned_makes_a_token_at_dev(place, tmp_path):
    dev = Dev(place / "a", tmp_path)
    facts = dev.ready()
    text = (harness.SOURCE / "docs/start-tuned.md").read_text()
    command = re.search("```sh\n(.*)\n```", text)[1].split()
    done = subprocess.run([BUILD / command[0], *command[1:]], capture_output=True, text=True,
                          env={**os.environ, "WAVETUNE_URL": facts["url"], "WAVETUNE_TOKEN": facts["token"]})
    assert done.returncode == 0, done.stderr
    assert get(facts["url"], "/v1/choices?gpu=x", done.stdout.split()[-1]).status != 401
    assert dev.interrupt() == 0


def test_a_second_dev_in_a_folder_in_use_is_refused_and_leaves_the_first_running(place, tmp_path):
    dev = Dev(place / "a", tmp_path)
    token = dev.ready()["token"]
    second = Dev(place / "a", tmp_path)
    assert second.wait() == 2
    assert second.messages.count("\n") == 1 and "another" in second.messages and str(place / "a") in second.messages
    assert dev.request("/v1/jobs") == 200
    assert (place / "a/token").read_text().strip() == token
    assert dev.interrupt() == 0


def test_dev_after_a_kill_of_everything_starts_with_its_data_and_token(place, tmp_path):
    """As after a power cut: a postmaster.pid is left, and its number belongs to another process by now."""
    dev = Dev(place / "a", tmp_path)
    token = dev.ready()["token"]
    postmaster = dev.postmaster()
    left = (place / "a/data/postmaster.pid").read_text()
    assert subprocess.run([SERVER, "token", "make", "kept", "--database", dev.facts["database"]], capture_output=True).returncode == 0
    dev.kill()
    wait_until(lambda: is_gone(postmaster), 30, "PostgreSQL to follow its parent")
    stale = place / "a/data/postmaster.pid"
    stale.write_text(left.replace(str(postmaster), str(os.getpid()), 1))
    shutil.chown(stale, *(("postgres", "postgres") if os.geteuid() == 0 else (os.geteuid(), os.getegid())))
    again = Dev(place / "a", tmp_path)
    assert again.ready()["token"] == token
    names = [t["name"] for t in json.loads(subprocess.run(
        [SERVER, "token", "list", "--json", "--database", again.facts["database"]], capture_output=True).stdout)]
    assert {"dev", "kept"} <= set(names), "another test of this folder made one, too"
    assert again.interrupt() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test of this file runs as the unprivileged user that it is")
def test_an_unprivileged_user_runs_dev_in_a_folder_of_its_own(place, tmp_path):
    programs = place / "programs"
    programs.mkdir(mode=0o755)
    shutil.copy(SERVER, programs)
    shutil.copytree(harness.SOURCE / "migrations", programs / "migrations")
    nobody = pwd.getpwnam("nobody")
    os.chown(place, nobody.pw_uid, nobody.pw_gid)
    before = ("setpriv", "--reuid=nobody", f"--regid={nobody.pw_gid}", "--clear-groups", "env", f"HOME={place}")
    dev = harness.Program([*before, programs / "wavetune-server", "dev", "--port", "0", "--json"], tmp_path,
                          {"WAVETUNE_MIGRATIONS": str(programs / "migrations"), "XDG_DATA_HOME": ""})
    facts = json.loads(wait_until(lambda: dev.process.poll() is None and "\n" in dev.output and dev.output or
                                  dev.process.poll() is not None and dev.messages, 60, "dev to be ready"))
    folder = pathlib.Path(facts["folder"])
    assert folder == (place / ".local/share/wavetune/dev").resolve()
    postmaster = int((folder / "data/postmaster.pid").read_text().split()[0])
    assert pathlib.Path(f"/proc/{postmaster}").stat().st_uid == nobody.pw_uid
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    dev.process.send_signal(signal.SIGINT)
    assert dev.wait(40) == 0 and is_gone(postmaster)


def test_a_folder_that_cannot_be_made_is_reported_in_one_sentence(place, tmp_path):
    (place / "file").write_text("")
    done = subprocess.run([SERVER, "dev", "--folder", place / "file/dev"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 2 and "cannot make" in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_answers_all_waiting_requests(place, tmp_path):
    dev = Dev(place / "a", tmp_path)
    facts = dev.ready()
    job = json.loads(harness.wavetune(types.SimpleNamespace(**facts), "submit", harness.QUICK, "--key", "n=5", "--json", "--environment", json.dumps(
        {"cpu": "gcc 1", "gpu": "g", "arch": "x86_64", "compute_units": 1, "partition": ""})).stdout)[0]["job"]
    statuses = []
    waiting = [threading.Thread(target=lambda: statuses.append(dev.request(f"/v1/jobs/{job}/events?after=1000&wait=60")))
               for _ in range(8)]
    for thread in waiting:
        thread.start()
    wait_until(lambda: b"\nwavetune_parked 8\n" in get(facts["url"], "/metrics", facts["token"]).body, 20, "parked requests")
    assert dev.interrupt() == 0
    for thread in waiting:
        thread.join(300)
    assert statuses == [503] * 8


@pytest.mark.parametrize("database, code, word", [
    ("host=/nowhere dbname=x password=s3cret", 3, "database is away"),
    ("postgresql://me:s3cret@[", 2, "neither"), ("password=my s3cret", 2, "neither"), ("no=such", 2, "neither")])
def test_a_wrong_database_is_one_sentence_without_its_password(database, code, word):
    for command in (("migrate",), ("token", "list")):
        done = subprocess.run([SERVER, *command, "--database", database], capture_output=True, text=True, timeout=600)
        assert done.returncode == code and word in done.stderr and done.stderr.count("\n") == 1, (command, done)
        assert "s3cret" not in done.stderr and done.stdout == ""
    done = subprocess.run([SERVER, "serve", "--port", "0"], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "WAVETUNE_DATABASE": "no=such"})
    assert done.returncode == 2 and "neither" in done.stderr


@pytest.mark.parametrize("options", [(), ("--migrate",)])
def test_serve_without_its_database_runs_and_reports_that_only_in_its_log(options, tmp_path):
    server = harness.Program([SERVER, "serve", *options, "--port", "0", "--database", "host=/nowhere dbname=x"], tmp_path)
    url = wait_until(lambda: "\n" in server.output and server.output, 20, "its line").split()[-1]
    wait_until(lambda: re.search("not ready: .*away", server.messages), 20, "the reason")
    for path, token in (("/readyz", None), ("/v1/jobs", "wt_x")):
        answer = get(url, path, token)
        assert answer.status == 503 and b"nowhere" not in answer.body, answer
    assert "/nowhere" in server.messages and get(url, "/healthz").status == 200
    assert server.messages.count("not ready") == 1  # the next time in a minute
    assert server.stop() == 0


def test_serve_migrate_waits_for_its_database_and_migrates_it(postgres, tmp_path):
    database = f"host={postgres.folder} user=postgres dbname=later"
    server = harness.Program([SERVER, "serve", "--migrate", "--port", "0", "--database", database], tmp_path)
    url = wait_until(lambda: "\n" in server.output and server.output, 20, "its line").split()[-1]
    wait_until(lambda: "not ready" in server.messages, 20, "the reason")
    postgres.sql("create database later", database="postgres")
    wait_until(lambda: get(url, "/readyz").status == 200, 30, "the server to be ready")
    assert int(postgres.sql("select max(version) from schema_migrations", conninfo=database)) >= 10
    assert server.stop() == 0


def test_serve_over_a_database_that_is_not_migrated_or_newer_says_what_to_do(empty_database, postgres, tmp_path):
    server = harness.Program([SERVER, "serve", "--port", "0", "--database", empty_database], tmp_path)
    wait_until(lambda: re.search("not ready: .*schema version 0", server.messages), 20, "what is missing")
    assert "wavetune-server migrate" in server.messages
    assert server.stop() == 0
    subprocess.run([SERVER, "migrate", "--database", empty_database], check=True, capture_output=True, timeout=600)
    postgres.sql("insert into schema_migrations (version, name, checksum) select max(version) + 1, 'x', 'x' from "
                 "schema_migrations", conninfo=empty_database)
    for options in ((), ("--migrate",)):
        server = harness.Program([SERVER, "serve", *options, "--port", "0", "--database", empty_database], tmp_path)
        wait_until(lambda: "not ready" in server.messages, 20, "what is wrong")
        assert "newer wavetune-server" in server.messages
        assert server.stop() == 0


def test_a_token_command_without_a_database_names_the_option_first():
    bare = {name: value for name, value in os.environ.items() if name != "WAVETUNE_DATABASE"}
    for command in ("make", "revoke"):
        done = subprocess.run([SERVER, "token", command], capture_output=True, text=True, env=bare)
        assert done.returncode == 2 and "--database" in done.stderr
