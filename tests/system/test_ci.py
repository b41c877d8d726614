"""The scripts of deploy/ci as CI jobs run them, against a real server, a played identity provider with the token endpoint of
GitHub Actions, and played APIs for comments."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse

import harness
import pytest
import yaml
from hands import ENVIRONMENT, Hand
from harness import BUILD, SOURCE, FakeServer, small_kernel, wait_until
from issuers import AUDIENCE, Issuer

CI = SOURCE / "deploy/ci"
PUBLISH = "--environment @environment.json"
RULES = ({"claims": {"repository_id": "1296269"}, "role": "submitter,publisher", "channels": ["nightly"]},)


class World:
    """A server with --oidc, GitHub's two endpoints, and a folder with a kernel where the job runs."""

    def __init__(self, start, database, folder):
        self.issuer, self.folder, self.lives_s, self.comments = Issuer(), folder, 300, []
        self.issuer.__enter__()
        path = folder / "oidc.json"
        path.write_text(json.dumps([self.issuer.configuration(*RULES)]))
        self.server = start(harness.Server, database, options=(*harness.UNHURRIED, *harness.LEASES_OF_8, "--oidc", path))
        small_kernel(folder / "kernel")
        (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
        self.api = FakeServer(self.answer, with_body=True)
        self.api.__enter__()
        self.hand = Hand(self.server, "node")

    def end(self):
        self.api.__exit__()
        self.issuer.__exit__()

    def answer(self, method, path, body):
        """Tokens for the right bearer, and comments."""
        url = urllib.parse.urlsplit(path)
        headers = {name.lower(): value for name, value in self.api.requests[-1][2].items()}
        if url.path == "/token":
            if headers.get("authorization") != "bearer of-the-runner":
                return 401, {}
            audience = urllib.parse.parse_qs(url.query)["audience"][0]
            return 200, {"count": 1, "value": self.issuer.token(aud=audience, jti=str(time.monotonic()),
                                                                exp=int(time.time()) - 60 + self.lives_s)}
        self.comments.append((path, headers, body))
        return 201, {"id": 1}

    def tokens(self):
        return sum(path.startswith("/token") for _, path, _ in self.api.requests)

    def github(self, **inputs):
        """The variables of a job whose step has these inputs, as action.yml turns them into variables; and its command."""
        action = yaml.safe_load((CI / "github/action.yml").read_text())
        step, = action["runs"]["steps"]
        given = {name: str(spec.get("default", "")) for name, spec in action["inputs"].items()}
        given |= {"url": self.server.url, "audience": AUDIENCE, "program": str(BUILD / "wavetune")}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        variables = {name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda m: given[m[1]], value)
                     for name, value in step["env"].items()}
        assert not any("${{" in value for value in variables.values())
        return step["shell"], step["run"], {
            **variables, "GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(CI / "github"), "GITHUB_REPOSITORY": "octo/kernels",
            "GITHUB_REF": "refs/pull/7/merge", "GITHUB_API_URL": self.api.url,
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "GITHUB_OUTPUT": str(self.folder / "output"), "ACTIONS_ID_TOKEN_REQUEST_URL": self.api.url + "/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "of-the-runner"}

    def run(self, shell, command, variables, in_background=False):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("WAVETUNE_", "GITHUB_", "CI_"))}
        process = subprocess.Popen([shell, "-e", "-c", command], cwd=self.folder, env=environment | variables, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        if in_background:
            return process
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def lines(self, *keys):
        return "\n".join(f"kernel --key n={key} --environment @environment.json" for key in keys) + "\n"

    def wait_submitted(self, n):
        wait_until(lambda: len(self.server.items("/v1/jobs")) == n, 60, "the jobs to be submitted")

    def summary(self):
        return (self.folder / "summary.md").read_text()


@pytest.fixture
def world(start, database, tmp_path):
    made = World(start, database, tmp_path)
    yield made
    made.end()


def test_a_job_of_github_tunes_publishes_and_shows_a_table_without_a_secret(world):
    process = world.run(*world.github(jobs=world.lines(1001, 1002), channel="nightly", publish=PUBLISH,
                                      comment_token="of-github"), in_background=True)
    world.wait_submitted(2)
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (out, err)
    assert {job["submitted_by"] for job in world.server.items("/v1/jobs")} == {"github:octo/kernels@refs/heads/main"}

    table = world.summary()
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert "every job has a winner" in table and len(rows) == 3 and all("`done`" in row for row in rows[1:]), table
    assert '`{"n":1001}`' in table and "REPEAT" in table
    release = re.search(r"Published `(sha256:[0-9a-f]{64})` to the channel `nightly`", table)[1]
    assert f"release={release}" in (world.folder / "output").read_text()
    assert world.server.items("/v1/channels")[0]["release"] == release
    assert (world.folder / "wavetune.md").read_text() == table

    (path, headers, body), = world.comments
    assert path == "/repos/octo/kernels/issues/7/comments" and headers["authorization"] == "Bearer of-github"
    assert json.loads(body)["body"] == table

    secrets = [path for _, path, _ in world.api.requests if "of-the-runner" in path]
    assert not secrets and "eyJ" not in out + err + table


def test_a_second_run_is_free_and_says_the_same(world):
    for _ in range(2):
        process = world.run(*world.github(jobs=world.lines(1)), in_background=True)
        world.wait_submitted(1)
        world.hand.work()
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, (out, err)
    assert len(world.server.items("/v1/jobs")) == 1
    first, second = world.summary().split("### ")[1:]
    assert first == second


def test_tokens_are_fetched_again_while_a_job_waits_for_longer_than_they_live(world):
    world.lives_s = 3
    process = world.run(*world.github(jobs=world.lines(1, 2)), in_background=True)
    world.wait_submitted(2)
    before = world.tokens()
    wait_until(lambda: world.tokens() >= before + 2, 60, "two more tokens")
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (out, err)
    assert world.summary().count("`done`") == 2


def test_after_the_timeout_the_table_has_what_there_is_and_the_jobs_go_on(world):
    (world.folder / "nowhere.json").write_text(json.dumps({**ENVIRONMENT, "gpu": "Nowhere"}))
    jobs = world.lines(1) + "kernel --key n=2 --environment @nowhere.json\n"
    other = Hand(world.server, "nowhere", environment={**ENVIRONMENT, "gpu": "Nowhere"})
    assert other.id
    process = world.run(*world.github(jobs=jobs, timeout="8", channel="nightly", publish=PUBLISH), in_background=True)
    world.wait_submitted(2)
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 9, (out, err)
    table = world.summary()
    assert "had not ended after 8 s" in table and "`done`" in table and "`queued`" in table
    assert "Nothing was published to the channel `nightly`" in table and not world.server.items("/v1/channels")
    assert {job["state"] for job in world.server.items("/v1/jobs")} == {"done", "queued"}


def test_a_failed_job_fails_the_ci_job_and_the_table_names_it(world):
    process = world.run(*world.github(jobs="# two\n\n" + world.lines(1, 2), channel="nightly", publish=PUBLISH), in_background=True)
    world.wait_submitted(2)
    failing = max(world.server.items("/v1/jobs"), key=lambda job: job["key"]["n"])["job"]
    while (answer := world.hand.pull()).status == 200:
        outcomes = {config: "runtime" for config in range(100)} if answer.json["job"] == failing else None
        assert world.hand.post(answer.json, outcomes=outcomes, detail="a | `fault`\nof @everyone").status == 200
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, (out, err)
    row, = [line for line in world.summary().splitlines() if '`{"n":2}`' in line]
    assert "`failed`" in row and row.count("|") - row.count("\\|") == 9, row
    assert "a job has no winner" in world.summary() and not world.server.items("/v1/channels")


def test_a_line_that_is_refused_is_named_and_the_others_are_tuned(world):
    wrong = "kernel --key m=1 --environment @environment.json\n"
    process = world.run(*world.github(jobs=wrong + world.lines(1)), in_background=True)
    world.wait_submitted(1)
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and "m" in err, (out, err)
    assert "Not submitted" in world.summary() and f"`wavetune submit {wrong.strip()}`" in world.summary()
    assert "`done`" in world.summary()


def test_a_channel_without_a_rule_is_refused(world):
    process = world.run(*world.github(jobs=world.lines(1), channel="stable", publish=PUBLISH), in_background=True)
    world.wait_submitted(1)
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 4 and "may move the channels nightly" in err, (out, err)
    assert "Nothing was published" in world.summary()


@pytest.mark.parametrize("change,words", [
    ({"ACTIONS_ID_TOKEN_REQUEST_URL": ""}, ("forks", "id-token: write")), ({"WAVETUNE_URL": ""}, ("WAVETUNE_URL",)),
    ({"WAVETUNE_CI_JOBS": "# none\n"}, ("WAVETUNE_CI_JOBS",)), ({"WAVETUNE_CI_JOBS_FILE": "nowhere"}, ("nowhere",))])
def test_a_job_that_cannot_begin_says_why(world, change, words):
    shell, command, variables = world.github(jobs=world.lines(1))
    code, out, err = world.run(shell, command, variables | change)
    assert code == 2 and all(word in err for word in words), (code, err)
    assert not world.server.items("/v1/jobs")


def test_a_token_endpoint_that_refuses_is_said(world):
    shell, command, variables = world.github(jobs=world.lines(1))
    code, out, err = world.run(shell, command, variables | {"ACTIONS_ID_TOKEN_REQUEST_TOKEN": "wrong"})
    assert code == 3 and "GitHub gave no token" in err, (code, err)


def test_a_comment_that_is_refused_does_not_fail_the_job(world):
    shell, command, variables = world.github(jobs=world.lines(1), comment_token="x")
    process = world.run(shell, command, variables | {"GITHUB_API_URL": "http://127.0.0.1:1"}, in_background=True)
    world.wait_submitted(1)
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "the comment was not accepted" in err, (out, err)


# The command for the token


def with_command(server, command, *arguments, **more):
    environment = {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN_COMMAND": command, **more}
    return harness.wavetune(None, *(arguments or ("jobs",)), check=False, environment=environment)


@pytest.mark.parametrize("command,words", [
    ("exit 7", ("exit code 7",)), ("kill -9 $$", ("exit code 137",)), ("echo a b", ("nothing else",)), ("true", ("nothing else",)),
    ("head -c 9000 /dev/zero | tr '\\0' a", ("nothing else",)), ("/nowhere/program", ("exit code 127",))])
def test_a_command_that_prints_no_token_is_said(start, database, command, words):
    done = with_command(start(harness.Server, database), command)
    assert done.returncode == 3 and all(word in done.stderr for word in ("--token-command", *words)), done


def test_a_refused_token_is_not_fetched_again_at_once(start, database, tmp_path):
    server, count = start(harness.Server, database), tmp_path / "count"
    done = with_command(server, f"echo x >>{count}; echo wt_wrong")
    assert done.returncode == 4 and "unknown or revoked" in done.stderr and count.read_text() == "x\n", done
    done = with_command(server, f"echo {server.token}")
    assert done.returncode == 0, done


def test_a_token_that_has_ended_at_each_answer_is_fetched_five_times_more_for_a_request(tmp_path):
    """Each answer takes longer than a token is new (TOKEN_NEW_MS)."""
    def answer(method, path):
        time.sleep(1.1)
        return 401, {"detail": "the token has expired"}

    count = tmp_path / "count"
    with harness.FakeServer(answer) as fake:
        done = with_command(fake, f"echo x >>{count}; wc -l <{count}")
    assert done.returncode == 4 and "the token has expired" in done.stderr, done
    assert [headers["Authorization"] for _, _, headers in fake.requests] == [f"Bearer {n}" for n in range(1, 7)]
    assert count.read_text() == 6 * "x\n"


def test_a_token_and_a_command_for_one_are_not_both_used(start, database):
    server = start(harness.Server, database)
    done = with_command(server, "echo x", WAVETUNE_TOKEN=server.token)
    assert done.returncode == 2 and "give only one" in done.stderr, done


def gitlab(world, **more):
    """The command and the variables of a job that extends the template."""
    job = yaml.safe_load((CI / "gitlab/wavetune.yml").read_text())[".wavetune"]
    assert job["id_tokens"] == {"WAVETUNE_ID_TOKEN": {"aud": "$WAVETUNE_AUDIENCE"}}
    assert job["artifacts"]["paths"] == [job["variables"]["WAVETUNE_CI_REPORT"]] and job["artifacts"]["when"] == "always"
    programs = world.folder / "bin"  # as cmake --install names them
    programs.mkdir(exist_ok=True)
    shutil.copy(CI / "wavetune-ci.sh", programs / "wavetune-ci")
    if not (programs / "wavetune").exists():
        (programs / "wavetune").symlink_to(BUILD / "wavetune")
    command, = job["script"]
    return "sh", command, {
        **job["variables"], "PATH": f"{programs}:{os.environ['PATH']}", "GITLAB_CI": "true", "WAVETUNE_URL": world.server.url,
        "WAVETUNE_ID_TOKEN": world.issuer.token(), "CI_API_V4_URL": world.api.url + "/api/v4", "CI_PROJECT_ID": "22",
        "CI_MERGE_REQUEST_IID": "5", "WAVETUNE_CI_JOBS": world.lines(1), **more}


@pytest.mark.parametrize("token", ["of-gitlab", ""])
def test_a_job_of_gitlab_leaves_an_artifact_and_with_a_token_a_note(world, token):
    process = world.run(*gitlab(world, WAVETUNE_CI_COMMENT_TOKEN=token), in_background=True)
    world.wait_submitted(1)
    world.hand.work()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, (out, err)
    table = (world.folder / "wavetune.md").read_text()
    assert "`done`" in table
    assert len(world.comments) == bool(token)
    for path, headers, body in world.comments:
        assert path == "/api/v4/projects/22/merge_requests/5/notes" and headers["private-token"] == "of-gitlab"
        assert urllib.parse.parse_qs(body.decode())["body"] == [table]


def test_a_job_of_gitlab_without_an_id_token_says_so(world):
    code, out, err = world.run(*gitlab(world, WAVETUNE_ID_TOKEN=""))
    assert code == 2 and "id_tokens" in err, (code, err)


def test_the_script_is_installed_beside_the_programs(tmp_path):
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", tmp_path], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert os.access(tmp_path / "bin/wavetune-ci", os.X_OK)
