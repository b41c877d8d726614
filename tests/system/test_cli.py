"""The command line as people and scripts call it: the output, exit code and refusals of every command."""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import time
import types

import harness
import pytest
from harness import BUILD, FakeServer, on_terminal, sleeping_kernel, small_kernel, wait_until, wavetune

PROGRAMS = ("wavetune", "wavetune-agent", "wavetune-server")
QUICK_OPTIONS = ("--screen-rounds", "3", "--final-rounds", "10", "--poll-seconds", "1")
# Jobs that no agent works on.
NOWHERE = ("--environment",
           json.dumps({"cpu": "gcc 1", "gpu": "nowhere", "arch": "x86_64", "compute_units": 4, "partition": ""}))


def call(*arguments, environment=None, program="wavetune", **more):
    """A program with no WAVETUNE_ variable but those given (and time to fetch)."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_") or k == "WAVETUNE_BUDGET_MS"}
    return subprocess.run([str(a) for a in (BUILD / program, *arguments)], capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL, env={**clean, "HOME": "/nonexistent", **(environment or {})}, **more)


def document(world, *arguments, **more):
    """The one JSON document that a command prints with --json, and nothing else."""
    return json.loads(wavetune(world.server, *arguments, "--json", **more).stdout)


@pytest.fixture(scope="module")
def world(postgres, tmp_path_factory):
    """A server, an agent, a kernel with one done job, two releases that differ, and the channel stable at the second. Of the
    kernel's two configs one is 64 times as slow, so that only the other one is a finalist."""
    folder = tmp_path_factory.mktemp("world")
    it = types.SimpleNamespace(folder=folder)
    it.kernel = sleeping_kernel(folder / "kernel", {"parameters": {"REPEAT": [1, 64], "TURN": [0]}})
    it.server = harness.Server(postgres.database(), folder)
    it.agent = harness.Agent(it.server, folder, options=QUICK_OPTIONS[:4])
    wait_until(lambda: it.server.items("/v1/agents"), 30, "the agent")
    it.job = json.loads(wavetune(it.server, "submit", it.kernel, "--key", "n=1003", "--wait", "--json").stdout)[0]
    it.before = datetime.datetime.now(datetime.timezone.utc).isoformat()
    it.hash = it.job["kernel"]
    loser = [{"REPEAT": r, "TURN": 0} for r in (1, 64) if r != it.job["winner"]["config_values"]["REPEAT"]][0]
    (folder / "pins.json").write_text(json.dumps([{"kernel": it.hash, "key": it.job["key"], "config": loser}]))
    it.pinned = document(it, "publish", "--pins", folder / "pins.json", "--channel", "stable")
    it.kept = wavetune(it.server, "publish", "--channel", "stable")
    it.published = document(it, "publish")
    it.moved = document(it, "promote", it.published["release"], "stable")
    yield it
    it.agent.stop()
    it.server.stop()


@pytest.fixture
def reader(world):
    name = f"reader-{time.monotonic_ns()}"
    return wavetune(world.server, "token", "make", name).stdout.strip()


# Help, versions, mistakes

def commands_of(program):
    listed = call("--help", program=program).stdout.split("commands:\n")[1].split("\n\n")[0]
    return [re.match(r"  (\S+(?: \S+)?)  ", line).group(1) for line in listed.splitlines()]


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_has_help_with_its_usage_and_each_option_once(program):
    commands = commands_of(program)
    assert len(commands) >= 4
    for command in commands:
        done = call(*command.split(), "--help", program=program)
        assert done.returncode == 0 and done.stderr == ""
        assert done.stdout.startswith(f"usage: {program} {command} [OPTIONS]"), done.stdout
        options = re.findall(r"^  --([a-z-]+)", done.stdout, re.M)
        assert len(options) == len(set(options)) and {"help", "version", "config"} <= set(options)
        assert max(map(len, done.stdout.splitlines())) <= 110, done.stdout
        assert call(*command.split(), "-h", program=program).stdout == done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_prints_its_version_and_its_help(program):
    done = call("--version", program=program)
    assert done.returncode == 0 and re.fullmatch(rf"{program} \d+\.\d+\.\d+\nbugs: see CONTRIBUTING.md\n", done.stdout)
    assert call(*commands_of(program)[0].split(), "--version", program=program).stdout == done.stdout
    nothing = call(program=program)
    assert nothing.returncode == 2 and nothing.stdout == "" and nothing.stderr == call("--help", program=program).stdout


def test_a_group_lists_its_commands():
    done = call("kernel")
    assert done.returncode == 2 and "kernel push" in done.stderr and "submit" not in done.stderr
    assert call("kernel", "--help").stdout == done.stderr


@pytest.mark.parametrize("words, word", [
    (("sumbit",), 'did you mean "submit"?'), (("kernel", "psuh"), 'did you mean "kernel push"?'),
    (("token", "mkae", "x"), 'did you mean "token make"?'), (("submit", "--prioritty", "1"), "did you mean --priority?"),
    (("fetch", "--tw", "x"), "did you mean --to?"), (("jobs", "-j"), "two dashes"),
    (("jobs", "now"), 'unexpected argument "now"'), (("submit", "x", "--priority"), "--priority needs a value"),
    (("submit", "x", "--priority", "high"), "integer from -1000 to 1000"), (("jobs", "--config", "/none.json"), "/none.json")])
def test_a_mistyped_command_is_refused_with_a_suggestion(words, word):
    done = call(*words)
    assert done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1 and done.stdout == "", done


@pytest.mark.parametrize("words", [
    ("publish", "--kernel", "\udcff"), ("publish", "--tag", "\udcff"), ("publish", "--regime", "\udcff"),
    ("publish", "--channel", "\udcff"), ("token", "make", "x", "--channel", "\udcff"), ("token", "make", "\udcff", "--uses", "2"),
    ("submit", harness.QUICK, "--key", "n=1", "--tag", "\udcff"), ("jobs", "--state", "\udcff")])
def test_text_that_json_cannot_hold_is_refused_and_not_left_out(words):
    with FakeServer(lambda *_: (400, {"detail": "no"})) as fake:
        done = call(*words, "--url", fake.url)
        assert not fake.requests
    assert done.returncode == 2 and "UTF-8" in done.stderr and done.stderr.count("\n") == 1 and done.stdout == "", done


def test_a_fetch_into_a_folder_that_json_cannot_name_reports_that_in_json(tmp_path):
    folder = os.fsdecode(bytes(tmp_path) + b"/\xff")
    (pathlib.Path(folder) / "current" / "json").mkdir(parents=True)
    (pathlib.Path(folder) / "current" / "json" / ".wavetune.json").write_text('{"files": 1, "variables": []}')
    done = call("fetch", "--to", folder, "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 5 and answer["folder"] is None and "UTF-8" in answer["reason"], done


def test_a_refusal_that_quotes_a_server_does_not_control_the_terminal():
    job = {"job": "1", "state": "\x1b]0;owned\x07\x1b[2J"}
    with FakeServer(lambda *_: (200, job)) as fake:
        done = wavetune(fake, "show", "1", "--recompute", check=False)
    assert done.returncode == 1 and "no winner" in done.stderr and not re.search("[\x00-\x09\x0b-\x1f\x7f]", done.stderr), done


def test_an_empty_answer_to_a_signature_crashes_no_program(tmp_path):
    call("key", "new", tmp_path / "key")
    with FakeServer(lambda *_: (200, {})) as fake:
        done = wavetune(fake, "kernel", "sign", harness.QUICK, "--sign-key", tmp_path / "key", "--json", check=False)
    assert done.returncode == 0 and [list(one) for one in json.loads(done.stdout)] == [["kernel"]], done


def test_two_words_of_a_command_are_two_arguments():
    done = call("kernel list")
    assert done.returncode == 2 and 'unknown command "kernel list"' in done.stderr, done


def test_a_list_whose_next_page_is_the_same_page_ends():
    with FakeServer(lambda *_: (200, {"items": [{"name": "a"}], "next": ""})) as fake:
        assert json.loads(wavetune(fake, "jobs", "--json", timeout=600).stdout) == [{"name": "a"}] and len(fake.requests) == 1
    with FakeServer(lambda *_: (200, {"items": [{"name": "a"}], "next": "b"})) as fake:
        done = wavetune(fake, "jobs", check=False, timeout=600)
        assert done.returncode == 4 and "repeats the page after b" in done.stderr and len(fake.requests) == 2
    with FakeServer(lambda *_: (200, {"items": [], "next": "b"})) as fake:
        assert json.loads(wavetune(fake, "audit", "--json", timeout=600).stdout) == [] and len(fake.requests) == 1


@pytest.mark.parametrize("program, words", [("wavetune", ("jobs",)), ("wavetune-agent", ("run", "--device", "cpu0"))])
def test_a_token_is_not_sent_over_plain_http_to_another_host_unless_allowed(program, words, tmp_path):
    there = ("--url", "http://192.0.2.1:7200")  # an address that is reserved for documentation
    state = ("--state", tmp_path / "state") if program == "wavetune-agent" else ()
    token = {"WAVETUNE_TOKEN": "wt_s3"}
    done = call(*words, *there, *state, program=program, environment=token)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "s3" not in done.stderr
    assert "unencrypted to http://192.0.2.1:7200" in done.stderr and "--insecure-http" in done.stderr
    if program == "wavetune":  # with the flag it does send it: to a proxy on this machine
        with FakeServer(lambda method, path: (200, {"items": [], "next": None})) as proxy:
            for environment, flags in (({}, ("--insecure-http",)), ({"WAVETUNE_INSECURE_HTTP": "1"}, ())):
                done = call(*words, *there, *flags, environment={**token, **environment, "http_proxy": proxy.url})
                assert done.returncode == 0, done
            assert [headers["Authorization"] for _, _, headers in proxy.requests] == ["Bearer wt_s3"] * 2


def test_wrong_inputs_are_one_sentence(world, tmp_path):
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "space.json").write_text(json.dumps({"parameters": {"A": [1, 2]}, "conditions": ["A < M"]}))
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "keys").write_text('{"n": 5}\n\n{"m": 5}\n')
    (tmp_path / "nothing").write_text("\n")
    kernel, url, wrong = world.kernel, ("--url", world.server.url, "--token", world.server.token), []
    for arguments, code, word in (
            (("submit",), 2, "one kernel folder"),
            (("submit", tmp_path), 2, "kernel.json"),
            (("submit", kernel), 2, "--key"),
            (("submit", kernel, "--key", "m=5"), 2, "--key m=5"),
            (("submit", kernel, "--keys", tmp_path / "keys"), 2, "keys:3"),
            (("submit", kernel, "--keys", tmp_path / "nothing"), 2, "no key"),
            (("submit", kernel, "--keys", tmp_path / "absent"), 2, "absent"),
            (("submit", kernel, "--key", "n=5", "--environment", "{"), 2, "--environment"),
            (("submit", kernel, "--key", "n=5", "--environment", "[]"), 2, "--environment must be"),
            (("submit", kernel, "--key", "n=5", "--environment", f"@{tmp_path}/no.json"), 2, "no.json"),
            (("submit", kernel, "--key", "n=5", "--environment", '{"gpu": "none like it"}'), 4, "/environment"),
            (("submit", kernel, "--key", "n=5", "--url", "ftp://x"), 2, "begin with http"),
            (("kernel", "push"), 2, "at least one"),
            (("kernel", "push", tmp_path), 2, "kernel.json"),
            (("kernel", "show"), 2, "name one kernel"),
            (("kernel", "show", "sha256:" + "0" * 64), 4, "kernel"),
            (("space", "count"), 2, "one kernel folder"),
            (("space", "count", tmp_path / "no.json"), 2, "no.json"),
            (("space", "count", tmp_path / "space.json"), 2, "M"),
            (("space", "expand", tmp_path / "space.json"), 2, "M"),
            (("space", "expand", kernel, "--key", "m=1"), 2, "--key m=1"),
            (("space", "count", tmp_path / "space.json", "--key", "M"), 2, "--key M"),
            (("show",), 2, "name one job"),
            (("show", "999999"), 4, "999999"),
            (("show", "one"), 4, "one"),
            (("jobs", "--state", "lazy"), 4, "state"),
            (("publish", "--pins", tmp_path / "no.json"), 2, "no.json"),
            (("publish", "--pins", tmp_path / "space.json"), 4, "pins"),
            (("publish", "--as-of", "yesterday"), 4, "as_of"),
            (("publish", "--tag", "nobody"), 4, "nobody"),
            (("promote", "sha256:" + "0" * 64), 2, "release and a channel"),
            (("promote", 'a"b', "stable"), 4, "stable was not moved"),
            (("promote", "sha256:" + "0" * 64, "stable"), 4, "stable was not moved"),
            (("promote", world.published["release"], "No Channel"), 4, "channel"),
            (("diff", world.published["release"]), 2, "two releases"),
            (("diff", "sha256:" + "0" * 64, world.published["release"]), 4, "0" * 64),
            (("diff", world.published["release"], tmp_path / "list.json"), 2, "not a release"),
            (("fetch",), 2, "--to FOLDER"),
            (("fetch", "--to", tmp_path / "c", "--format", "xml"), 2, "unknown format \"xml\""),
            (("fetch", "--to", tmp_path / "c", "--environment", "x"), 2, "--environment"),
            (("token", "make"), 2, "name the token"),
            (("token", "make", "x", "--role", "king"), 4, "role"),
            (("token", "revoke"), 2, "name one token"),
            (("token", "revoke", "no-such-token"), 4, "no-such-token")):
        done = call(*arguments, *(() if "--url" in arguments or arguments[0] == "space" else url))
        is_good = done.returncode == code and word in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""
        if not is_good or world.server.token in done.stderr:
            wrong.append((arguments, code, word, done))
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("words,sentence", [
    (("rollback",), "default: the one"),
    (("publish",), "role publisher or admin"), (("submit",), "final included"),
    (("compatible", "add"), "the same members"),
    (("campaign", "revalidate"), "with 2 when --to")])
def test_help_explains_options(words, sentence):
    assert sentence in " ".join(call(*words, "--help").stdout.split())


# Exit codes

def test_every_documented_exit_code_is_reached(world, reader, tmp_path):
    """70 is what test_server's dev ends with when its PostgreSQL was killed: no other case can be made to happen. 10 to 14 are
    reached in test_fetch.py with servers that send false answers."""
    url = ("--url", world.server.url, "--token", world.server.token)
    away = ("--url", "http://127.0.0.1:9")
    fetch = ("fetch", "--to", tmp_path / "cache")
    reached = {call(*arguments).returncode: arguments for arguments in (
        ("jobs", *url), ("diff", world.pinned["release"], world.published["release"], *url), ("jobs", "--tokn", "x"),
        ("jobs", *away), ("token", "list", "--url", world.server.url, "--token", reader),
        (*fetch, *away), (*fetch, *url), (*fetch, *url, "--exit-code"), (*fetch, *away),
        (*fetch, *url, "--format", "vllm-moe"), (*fetch, *url, "--channel", "stabel"),
        ("submit", world.kernel, "--key", "n=909", *NOWHERE, "--wait", "--timeout", "1", *url))}
    documented = re.findall(r"^\| (\d+) \|", (harness.SOURCE / "docs/exit-codes.md").read_text(), re.M)
    assert sorted([*reached, *range(10, 15), 70]) == sorted(map(int, documented))


@pytest.mark.parametrize("words", [
    ("kernel", "list"), ("kernel", "show", "x"), ("kernel", "push", harness.QUICK), ("submit", harness.QUICK, "--key", "n=5"),
    ("jobs",), ("show", "1"), ("agents",), ("top",), ("campaigns",), ("cost",), ("environments",), ("publish",), ("releases",), ("channels",),
    ("promote", "x", "y"), ("diff", "sha256:" + "0" * 64, "sha256:" + "1" * 64), ("token", "make", "x"), ("token", "list"),
    ("token", "revoke", "x")], ids=lambda words: " ".join(map(str, words[:2])).replace(str(harness.QUICK), "…"))
def test_a_temporary_error_of_a_server_is_3_and_a_refusal_is_4(words):
    for status, code in ((503, 3), (500, 3), (403, 4)):
        with FakeServer(lambda *_: (status, {"detail": "because I say so", "status": status})) as fake:
            done = wavetune(fake, *words, check=False)
        assert done.returncode == code and done.stderr.count("\n") == 1 and "because I say so" in done.stderr, done
    with FakeServer(lambda *_: (502, b"<html>Bad Gateway</html>")) as fake:
        done = wavetune(fake, *words, check=False)
    assert done.returncode == 3 and "502" in done.stderr and "<html>" not in done.stderr, done
    done = call(*words, "--url", "http://127.0.0.1:9")
    assert done.returncode == 3 and "http://127.0.0.1:9" in done.stderr and done.stderr.count("\n") == 1


def test_stdout_that_cannot_be_written_is_a_failure(world):
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(a) for a in (BUILD / "wavetune", "space", "expand", world.kernel)], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "stdout" in done.stderr and "No space left" in done.stderr


# Where options come from

def test_a_flag_goes_before_a_variable_before_a_file_before_the_default(tmp_path):
    with FakeServer(lambda *_: (404, {"detail": "no"})) as flag, FakeServer(lambda *_: (404, {"detail": "no"})) as variable, \
            FakeServer(lambda *_: (404, {"detail": "no"})) as file:
        (tmp_path / "config.json").write_text(json.dumps({"url": file.url, "token": "of-file", "tag": "of-file"}))
        environment = {"WAVETUNE_CONFIG": str(tmp_path / "config.json")}
        fetch = ("fetch", "--to", tmp_path / "cache")

        def seen(server):
            method, path, headers = server.requests.pop()
            return headers["Authorization"], re.search(r"tag=([^&]*)", path).group(1)

        call(*fetch, environment=environment)
        assert seen(file) == ("Bearer of-file", "of-file")
        environment.update(WAVETUNE_URL=variable.url, WAVETUNE_TOKEN="of-variable", WAVETUNE_TAG="of-variable")
        call(*fetch, environment=environment)
        assert seen(variable) == ("Bearer of-variable", "of-variable")
        call(*fetch, "--url", flag.url, "--token=of-flag", "--tag", "of-flag", environment=environment)
        assert seen(flag) == ("Bearer of-flag", "of-flag")
        call(*fetch, "--url", flag.url, "--token", "x")
        assert seen(flag) == ("Bearer x", "default")
        assert not (flag.requests or variable.requests or file.requests)
    done = call("jobs")
    assert done.returncode == 3 and "http://127.0.0.1:7200" in done.stderr


def test_a_file_holds_options_of_all_programs_and_nothing_else(tmp_path):
    members = set()
    for program in PROGRAMS:
        listed = call("--help", program=program).stdout.split("commands:")[1]
        for command in re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?:  |$)", listed, re.M):
            text = " ".join(call(*command.split(), "--help", program=program).stdout.split())
            members |= {name.lower() for name in re.findall(r"WAVETUNE_([A-Z_]+)\)", text)}
    members -= {"config"}
    assert len(members) > 40
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dict.fromkeys(members)))
    for program, words in (("wavetune", ("kernel", "hash", harness.QUICK)), ("wavetune-agent", ("env",)),
                           ("wavetune-server", ("token", "list", "--database", "no=such"))):
        done = call(*words, "--config", path, program=program)
        assert "option" not in done.stderr, (program, done.stderr)
    for program, words in (("wavetune", ("jobs",)), ("wavetune-agent", ("run",)), ("wavetune-server", ("serve",))):
        for wrong, word in (("portt", 'did you mean "port"?'), ("frobnicate", 'option "frobnicate"')):
            path.write_text(json.dumps({"url": "http://127.0.0.1:1", wrong: "s3cret"}))
            done = call(*words, "--config", path, program=program)
            assert done.returncode == 2 and word in done.stderr and "s3cret" not in done.stderr, done


# Kernels and spaces

def test_kernels_are_pushed_listed_and_shown(world, tmp_path):
    other = small_kernel(tmp_path / "kernel", name="pushed")
    pushed = document(world, "kernel", "push", other, world.kernel)
    assert [k["name"] for k in pushed] == ["pushed/c", "quick/c"] and pushed[1]["kernel"] == world.hash
    assert wavetune(world.server, "kernel", "push", other).stdout == f"{pushed[0]['kernel']}  pushed/c\n"
    assert {k["kernel"] for k in document(world, "kernel", "list")} >= {k["kernel"] for k in pushed}
    assert re.search(rf"^{world.hash}  c +quick/c$", wavetune(world.server, "kernel", "list").stdout, re.M)
    shown = document(world, "kernel", "show", world.hash)
    assert shown["kernel"] == world.hash and shown["manifest"]["name"] == "quick/c"
    assert json.loads(wavetune(world.server, "kernel", "show", world.hash).stdout) == shown["manifest"]


def test_a_kernel_is_registered_while_blobs_are_added_and_removed():
    """The server lists what it lacks; when it lists it again after the upload, that is an answer, not a loop."""
    def answer(method, path):
        return (201, {}) if method == "PUT" else (409, {"detail": "files are missing", "missing": list(digests)})

    digests = ["sha256:" + hashlib.sha256(path.read_bytes()).hexdigest() for path in harness.QUICK.glob("*.c")]
    with FakeServer(answer) as fake:
        done = wavetune(fake, "kernel", "push", harness.QUICK, check=False)
        assert [r[0] for r in fake.requests] == ["POST", "PUT", "PUT", "POST"]
    assert done.returncode == 4 and "files are missing" in done.stderr
    with FakeServer(lambda *_: (409, {"detail": "no", "missing": ["sha256:" + "0" * 64]})) as fake:
        done = wavetune(fake, "kernel", "push", harness.QUICK, check=False)
    assert done.returncode == 4 and "not a file of" in done.stderr


def test_a_space_is_counted_and_expanded_without_a_server(tmp_path):
    file = tmp_path / "space.json"
    file.write_text(json.dumps({"parameters": {"A": [1, 2, 3], "B": ["x", "y"]},
                                "conditions": ["A <= M", "B == 'x' or arch == 'gfx942'"]}))
    count = json.loads(call("space", "count", file, "--key", "M=2", "--arch", "gfx90a", "--json").stdout)
    assert count == {"configs": 2, "raw": 6}
    assert call("space", "count", file, "--key", "M=2", "--arch=gfx942").stdout.startswith("4 of 6 configs")
    expand = ("space", "expand", file, "--key", "M=2", "--arch", "gfx942")
    lines = call(*expand, "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"ordinal": o, "config": {"A": a, "B": b}} for o, a, b in ((0, 1, "x"), (1, 1, "y"), (2, 2, "x"), (3, 2, "y"))]
    first = call(*expand, "--limit", "1")
    assert first.returncode == 0 and first.stdout.split() == ["0", "A=1", 'B="x"'] or first.stdout.startswith("         0  ")
    assert "--limit" in first.stderr and call(*expand, "--limit", "4").stderr == ""
    assert call("space", "count", harness.QUICK).stdout.startswith("49 of 70 configs")


# Jobs

def test_many_keys_are_one_batch_and_the_same_again_is_known(world, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("".join(f'{{"n": {n}}}\n' for n in range(2000, 3001)) + "\n")
    world_less = (*NOWHERE, "--tag", "batch")
    arguments = ("submit", world.kernel, "--keys", keys, "--key", "n=1", *world_less)
    first, again = document(world, *arguments), document(world, *arguments)
    assert len(first) == 1002 and all(a["created"] for a in first) and not any(a["created"] for a in again)
    assert [a["job"] for a in first] == [a["job"] for a in again]
    listed = document(world, "jobs", "--tag", "batch")
    assert len(listed) == 1002, "lists are read to their last page"
    text = wavetune(world.server, "submit", world.kernel, "--key", "n=1", *world_less)
    assert re.fullmatch(rf"job {first[0]['job']}  known  2 configs  queued\n", text.stdout)
    assert "no live agent" in text.stderr and "enrols" in text.stderr


def test_ranges_and_lists_name_a_job_for_each_combination(world, tmp_path):
    options = (*NOWHERE, "--tag", "ranges")
    ranged = document(world, "submit", world.kernel, "--key", "n=1..4096*2,3000", "--key", "n=8,64..192+64", *options)
    assert len(ranged) == 13 + 1 + 1, "powers of two, 3000, and 192: 8, 64 and 128 count once"
    jobs = [world.server.get(f"/v1/jobs/{one['job']}")["key"]["n"] for one in ranged]
    assert jobs == [1 << i for i in range(13)] + [3000, 192]
    (tmp_path / "keys").write_text('# of a model\nn=1..4\n{"n": 5}\n')
    lines = document(world, "submit", world.kernel, "--keys", tmp_path / "keys", *options)
    piped = subprocess.run([BUILD / "wavetune", "submit", world.kernel, "--keys", "-", "--json", *options], check=True, text=True,
                           input='{"n": 1}\nn=2..5\n', capture_output=True,
                           env={**os.environ, "WAVETUNE_URL": world.server.url, "WAVETUNE_TOKEN": world.server.token})
    assert [one["job"] for one in json.loads(piped.stdout)] == [one["job"] for one in lines]
    many = wavetune(world.server, "submit", world.kernel, "--key", "n=1..65536", *options, check=False)
    assert many.returncode == 2 and "more than 10000 values" in many.stderr and many.stderr.count("\n") == 1
    nothing = wavetune(world.server, "submit", world.kernel, "--keys", "-", *options, check=False)
    assert nothing.returncode == 2 and "standard input has no key" in nothing.stderr


def test_captured_keys_are_named_by_ranges_too():
    bodies = []
    with FakeServer(lambda method, path, body: bodies.append(json.loads(body)) or (200, {"items": []}), with_body=True) as fake:
        done = wavetune(fake, "captures", "tune", "1", "--key", "n=1..4*2,m=3", "--key", '{"t": "a"}', check=False)
        many = wavetune(fake, "captures", "tune", "1", "--key", "n=1..x", check=False)
    assert done.returncode == 1 and bodies[0]["keys"] == [{"n": 1, "m": 3}, {"n": 2, "m": 3}, {"n": 4, "m": 3}, {"t": "a"}]
    assert many.returncode == 2 and "--key n=1..x: n: " in many.stderr and len(bodies) == 1


def test_a_job_takes_the_space_of_a_file(world, tmp_path):
    (tmp_path / "space.json").write_text(json.dumps({"parameters": {"REPEAT": [1, 2, 3], "TURN": [0]}}))
    words = ("submit", world.kernel, "--key", "n=1", "--tag", "of a file", *NOWHERE)
    assert document(world, *words, "--space", tmp_path / "space.json")[0]["configs"] == 3
    assert document(world, *words)[0]["configs"] == 2
    (tmp_path / "space.json").write_text('{"parameters": {"REPEAT": 1}}')
    for place in (tmp_path / "space.json", tmp_path / "absent.json"):
        done = wavetune(world.server, *words, "--space", place, check=False)
        assert done.returncode == 2 and str(place) in done.stderr and done.stderr.count("\n") == 1


def test_several_keys_of_a_space_are_counted_and_listed(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"parameters": {"A": [1, 2, 3]}, "conditions": ["A <= M"]}))
    assert call("space", "count", path, "--key", "M=1..2").stdout == "M=1: 1 of 3 configs are valid\nM=2: 2 of 3 configs are valid\n"
    assert json.loads(call("space", "count", path, "--key", "M=1,3", "--json").stdout) == [
        {"configs": 1, "raw": 3, "key": {"M": 1}}, {"configs": 3, "raw": 3, "key": {"M": 3}}]
    assert json.loads(call("space", "count", path, "--key", "M=2", "--json").stdout) == {"configs": 2, "raw": 3}
    listed = call("space", "expand", path, "--key", "M=1..2", "--limit", "2")
    assert [line.split() for line in listed.stdout.splitlines()] == [["M=1"], ["0", "A=1"], ["M=2"], ["0", "A=1"]]
    assert "higher --limit" in listed.stderr
    lines = call("space", "expand", path, "--key", "M=1..2", "--json").stdout.splitlines()
    assert [json.loads(line)["key"]["M"] for line in lines] == [1, 2, 2]


def test_jobs_are_filtered(world):
    assert [j["job"] for j in document(world, "jobs", "--state", "done", "--tag", "default", "--kernel", world.hash)] \
        == [world.job["job"]]
    assert document(world, "jobs", "--kernel", "sha256:" + "0" * 64) == []
    assert document(world, "jobs", "--state", "failed") == []
    head, row = wavetune(world.server, "jobs", "--state", "done").stdout.splitlines()
    assert head.split() == ["job", "kernel", "key", "tag", "run", "state", "measured", "configs", "by"]
    *row, by = row.split()
    assert row == [world.job["job"], "quick/c", '{"n":1003}', "default", "done", "2", "2"] and by.startswith("admin-")


def test_a_job_is_shown_and_its_verdict_recomputed(world):
    shown = document(world, "show", world.job["job"])
    assert shown["winner"] == world.job["winner"]
    table = wavetune(world.server, "show", world.job["job"]).stdout
    assert "winner (*)" in table and "GB/s" in table and "GFLOP/s" in table
    assert "the same verdict" in wavetune(world.server, "show", world.job["job"], "--recompute").stdout
    assert document(world, "show", world.job["job"], "--recompute")["same"] is True
    queued = document(world, "submit", world.kernel, "--key", "n=9", *NOWHERE)[0]["job"]
    assert re.fullmatch(rf"job {queued}  quick/c  queued\nwaiting: no device .*\n"
                        rf"submitted by admin-\d+ at \S+\n", wavetune(world.server, "show", queued).stdout)
    done = wavetune(world.server, "show", queued, "--recompute", check=False)
    assert done.returncode == 1 and "no winner" in done.stderr
    done = wavetune(world.server, "show", queued, "--recompute", "--devices", check=False)
    assert done.returncode == 2 and "--recompute, --devices, --asm and --ttgir" in done.stderr


def test_a_job_that_ended_without_a_winner_is_shown_with_1(world):
    job = document(world, "submit", world.kernel, "--key", "n=8", *NOWHERE)[0]["job"]
    assert wavetune(world.server, "show", job).returncode == 0, "it has not ended"
    wavetune(world.server, "cancel", job)
    for more in ((), ("--json",)):
        done = wavetune(world.server, "show", job, *more, check=False)
        assert (done.returncode, done.stderr) == (1, "") and "cancelled" in done.stdout, done


def test_a_verdict_that_differs_from_the_samples_is_reported(world, postgres):
    database, job = world.server.database, world.job["job"]
    stored = postgres.sql(f"select verdict from winners where job_id = {job}", conninfo=database)
    postgres.sql(f"update winners set verdict = jsonb_set(verdict::jsonb, '{{regret_bound}}', '0.5') where job_id = {job}",
                 conninfo=database)
    try:
        done = wavetune(world.server, "show", job, "--recompute", check=False)
        assert done.returncode == 1 and "ANOTHER verdict" in done.stdout
        assert document(world, "show", job, "--recompute", check=False)["same"] is False
    finally:
        postgres.sql(f"update winners set verdict = '{stored}' where job_id = {job}", conninfo=database)


def test_a_rate_without_a_value_leaves_only_its_cell_empty(world, tmp_path):
    kernel = small_kernel(tmp_path / "kernel", name="rates", flops="n // (n - 1003)")
    done = wavetune(world.server, "submit", kernel, "--key", "n=1003", "--wait")
    assert "winner (*)" in done.stdout and "GFLOP/s" in done.stdout
    assert re.search(r" -  REPEAT=", done.stdout), done.stdout


def test_waiting_for_a_job_that_is_cancelled_ends_with_1(world, tmp_path):
    arguments = ("submit", world.kernel, "--key", "n=10", *NOWHERE, "--json")
    job = document(world, *arguments[:-1])[0]["job"]
    waiting = harness.Program([BUILD / "wavetune", *arguments, "--wait"], tmp_path,
                              {"WAVETUNE_URL": world.server.url, "WAVETUNE_TOKEN": world.server.token})
    wait_until(lambda: "no live agent" in waiting.messages, 20, "the warning about a wait that cannot end")
    assert world.server.request("DELETE", f"/v1/jobs/{job}").status == 200
    assert waiting.wait() == 1
    assert json.loads(waiting.output)[0]["state"] == "cancelled"


def test_waiting_outlasts_a_restart_of_the_server_but_not_the_time_limit(start, database, tmp_path):
    server = start(harness.Server, database)
    arguments = ("submit", small_kernel(tmp_path / "kernel"), "--key", "n=10", *NOWHERE)
    job = json.loads(wavetune(server, *arguments, "--json").stdout)[0]["job"]

    def waiting(*more):
        return harness.Program([BUILD / "wavetune", *arguments, "--wait", *more], tmp_path,
                               {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.token})

    patient, hasty = waiting(), waiting("--patience", "0")
    wait_until(lambda: patient.output and hasty.output, 20, "both to follow the job")
    server.stop()
    assert hasty.wait() == 3
    wait_until(lambda: "trying again for" in patient.messages, 20, "the first failed try")
    again = start(harness.Server, database, port=server.port)
    assert again.request("DELETE", f"/v1/jobs/{job}?any=true").status == 200
    assert patient.wait() == 1
    assert patient.messages.count("trying again") == 1 and "cancelled" in patient.output


def test_a_bar_is_drawn_on_a_terminal_and_never_on_a_pipe(world):
    environment = {"WAVETUNE_URL": world.server.url, "WAVETUNE_TOKEN": world.server.token}
    submit = (BUILD / "wavetune", "submit", world.kernel, "--key", "n=100003", "--wait", "--run")
    code, out, shown = on_terminal((*submit, "watched"), environment)
    assert code == 0 and "winner (*)" in out and "\x1b" not in out
    assert re.search(r"\rquick/c \[[#.]{24}\] \d/2  \d+ s", shown) and shown.endswith("\r\x1b[K"), "drawn, then wiped"
    _, _, dumb = on_terminal((*submit, "watched"), {**environment, "TERM": "dumb"})
    assert dumb == ""
    piped = subprocess.run([str(a) for a in (*submit, "piped")], capture_output=True, env={**os.environ, **environment})
    assert piped.returncode == 0 and piped.stderr == b""
    code, out, shown = on_terminal((BUILD / "wavetune-agent", "tune", world.kernel, "--key", "n=1003", "--state",
                                    world.folder / "tune", "--screen-rounds", "3", "--final-rounds", "10"))
    assert code == 0 and "\rscreen [" in shown and "\rfinal [" in shown and "\x1b" not in out


def test_a_refusal_after_a_bar_is_on_a_line_of_its_own(world):
    """The bar is wiped before the sentence."""
    def answer(method, path):
        if "/events" in path:
            return 403, {"detail": "no more of this"}
        if method == "POST":
            return 201, {"jobs": [{"job": "1", "state": "queued", "agents": {"matching": 1}}]}
        return 200, {"job": "1", "state": "running", "name": "x/c", "configs": 2, "measured": 1}

    with FakeServer(answer) as fake:
        code, _, shown = on_terminal((BUILD / "wavetune", "submit", world.kernel, "--key", "n=1", "--wait"),
                                     {"WAVETUNE_URL": fake.url, "WAVETUNE_TOKEN": "x"})
    assert code == 4 and shown.endswith("\r\x1b[Kwavetune: no more of this\r\n")


def test_agents_and_environments_are_listed(world):
    def idle():  # once it has ended the leases of the tests before
        [agent] = document(world, "agents")
        return agent if agent["devices"][0]["state"] == "idle" else None

    agent = wait_until(idle, 30, "the device to be idle")
    assert agent["state"] == "live" and agent["devices"][0]["environment"] == world.job["environment"]
    assert re.search(r"^node +1 idle ", wavetune(world.server, "agents").stdout, re.M)
    assert world.job["environment"] in [e["environment"] for e in document(world, "environments")]
    assert wavetune(world.server, "environments").stdout.splitlines()[0].split() == ["live", "agents", "environment"]


# Releases and channels

def test_publishing_lists_what_was_released_and_what_was_skipped(world):
    wavetune(world.server, "submit", world.kernel, "--key", "n=7", *NOWHERE)  # becomes a second environment only when it was tuned
    done = wavetune(world.server, "publish", "--kernel", world.hash)
    assert re.match(r"release  sha256:[0-9a-f]{64}\n         \d+ winners?, tag default, cpu ", done.stdout), done.stdout
    assert [made["included"][0]["origin"] for made in (world.pinned, world.published)] == ["pinned", "tuned"]
    assert world.pinned["channel"]["counter"] + 1 == world.moved["counter"]
    before = wavetune(world.server, "publish", "--as-of", "2020-01-01T00:00:00Z", check=False)
    assert before.returncode == 4
    wavetune(world.server, "submit", world.kernel, "--key", "n=1003", "--run", "again", "--wait")
    done = wavetune(world.server, "publish", "--kernel", world.hash)
    assert f'skipped  quick/c {{"n":1003}}: superseded by job' in done.stderr
    assert "release  sha256:" in done.stdout
    as_it_was = document(world, "publish", "--kernel", world.hash, "--as-of", world.before)
    assert as_it_was["release"] == world.published["release"] and as_it_was["winners"] == 1


def test_publishing_to_a_channel_keeps_a_config_that_was_not_measured_with_the_winner(world):
    """The pinned config is far slower, so it is no finalist: only a pin, or promoting a release, replaces it."""
    assert re.match(r'kept     quick/c \{"n":1003\}: .* config \d+ ', world.kept.stderr)
    assert f"release  {world.pinned['release']}" in world.kept.stdout and "channel  stable, counter 1" in world.kept.stdout


@pytest.mark.parametrize("share", ["two", "-0.1", "1", "2%", ""])
def test_a_minimum_gain_is_a_share(share):
    done = call("publish", "--channel", "stable", "--min-gain", share)
    assert done.returncode == 2 and "0 to below 1" in done.stderr


def test_a_release_that_does_not_match_its_digest_is_not_published():
    with FakeServer(lambda *_: (201, {"release": "sha256:" + "0" * 64, "bytes": "{}"})) as fake:
        done = wavetune(fake, "publish", "--channel", "stable", check=False)
        assert [r[0] for r in fake.requests] == ["POST"], "no channel was moved"
    assert done.returncode == 4 and "not a release" in done.stderr


def test_channels_are_promoted_and_rolled_back_and_a_lost_race_is_refused(world):
    first, second = world.pinned["release"], world.published["release"]
    moved = document(world, "promote", first, "canary")
    assert (moved["channel"], moved["counter"], moved["release"]) == ("canary", 1, first)
    won = document(world, "promote", second, "canary", "--if-match", moved["etag"])
    assert won["counter"] == 2
    lost = wavetune(world.server, "promote", first, "canary", "--if-match", moved["etag"], check=False)
    assert lost.returncode == 4 and "canary was not moved" in lost.stderr and lost.stderr.count("\n") == 1
    back = wavetune(world.server, "promote", first, "canary", "--if-match", won["etag"].strip('"'))
    assert back.stdout.startswith(f"channel  canary, tag default, counter 3\nrelease  {first}\netag     ")
    entry = next(c for c in document(world, "channels") if c["channel"] == "canary")
    assert (entry["counter"], entry["release"]) == (3, first)
    assert re.search(rf"^canary +default +3 .*{first}", wavetune(world.server, "channels").stdout, re.M)
    releases = document(world, "releases")
    assert {first, second} <= {r["release"] for r in releases}
    assert re.search(rf"^{first} .* default +1 ", wavetune(world.server, "releases").stdout, re.M)


def test_only_an_admin_moves_channels_and_a_reader_submits_nothing(world, reader):
    for words in (("promote", world.pinned["release"], "canary"), ("submit", world.kernel, "--key", "n=5"), ("publish",),
                  ("token", "list")):
        done = wavetune(world.server, *words, token=reader, check=False)
        assert done.returncode == 4 and done.stderr.count("\n") == 1, (words, done)
    assert wavetune(world.server, "jobs", token=reader).returncode == 0


def test_two_releases_are_compared(world, tmp_path):
    first, second = world.pinned["release"], world.published["release"]
    done = wavetune(world.server, "diff", first, second, check=False)
    winner = json.dumps(world.job["winner"]["config_values"], separators=(",", ":"))
    assert done.returncode == 1 and f"    to   {winner}\n" in done.stdout
    assert done.stdout.endswith("0 removed, 0 added, 1 changed, 0 the same\n")
    assert json.loads(wavetune(world.server, "diff", first, second, "--json", check=False).stdout)["changed"][0]["name"] == "quick/c"
    for name, published in (("a", world.pinned), ("b", world.published)):
        (tmp_path / name).write_text(published["bytes"])
    files = call("diff", tmp_path / "a", tmp_path / "b", environment={"WAVETUNE_URL": "http://127.0.0.1:9"})
    assert (files.returncode, files.stdout) == (1, done.stdout)
    same = wavetune(world.server, "diff", tmp_path / "b", second)
    assert same.stdout == "0 removed, 0 added, 0 changed, 1 the same\n"


def test_releases_that_differ_only_in_environment_or_tag_are_reported(world, tmp_path):
    (tmp_path / "a").write_text(world.published["bytes"])
    release = json.loads(world.published["bytes"])
    release["tag"], release["environment"]["cpu"] = "night", "clang 19"
    (tmp_path / "b").write_text(json.dumps(release, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    done = call("diff", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 1 and '~ tag\n    from "default"\n    to   "night"\n' in done.stdout and "~ environment" in done.stdout
    answer = json.loads(call("diff", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert answer["tag"] == {"from": "default", "to": "night"} and answer["same"] == 1


def test_a_release_with_other_bytes_than_its_digest_is_not_compared(world):
    with FakeServer(lambda *_: (200, world.published["bytes"].encode())) as fake:
        done = wavetune(fake, "diff", world.pinned["release"], world.published["release"], check=False)
    assert done.returncode == 4 and "has the digest" in done.stderr


# Tokens

def test_tokens_are_made_listed_and_revoked(world):
    name = f"ci-{time.monotonic_ns()}"
    made = document(world, "token", "make", name, "--role", "submitter")
    assert (made["name"], made["role"]) == (name, "submitter")
    assert wavetune(world.server, "kernel", "push", world.kernel, token=made["token"]).returncode == 0
    twice = wavetune(world.server, "token", "make", name, check=False)
    assert twice.returncode == 4 and name in twice.stderr
    assert re.search(rf"^{name} +submitter +made \S+ by admin-\d+$", wavetune(world.server, "token", "list").stdout, re.M)
    assert wavetune(world.server, "token", "revoke", name).stdout == f"revoked {name}\n"
    assert re.search(rf"^{name} .* revoked \S+$", wavetune(world.server, "token", "list").stdout, re.M)
    item = next(t for t in document(world, "token", "list") if t["name"] == name)
    assert item["revoked_at"] and "token" not in item
    refused = wavetune(world.server, "jobs", token=made["token"], check=False)
    assert refused.returncode == 4 and made["token"] not in refused.stderr
    other = document(world, "token", "make", f"{name}-b")["name"]
    assert document(world, "token", "revoke", other) == {"revoked": other}


# The documentation page

PAGE = harness.SOURCE / "docs/cli.md"


def test_the_page_has_an_example_of_every_command():
    examples = re.findall(r"^wavetune .*", PAGE.read_text(), re.M)
    assert [c for c in commands_of("wavetune") if not any(e.startswith(f"wavetune {c}") for e in examples)] == []


def test_every_example_of_the_page_works(world, tmp_path, postgres):
    """In their order, in one shell that stops at the first failure; `diff` exits with 1 there, as the page describes."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    script = tmp_path / "page.sh"
    script.write_text("set -eu\n" + "".join(blocks))
    (tmp_path / "keys.jsonl").write_text('{"rows": 16, "columns": 64}\n{"rows": 8, "columns": 32}\n')
    (tmp_path / "pins.json").write_text((world.folder / "pins.json").read_text())
    (tmp_path / "config.json").write_text((harness.SOURCE / "tests/data/models/deepseek-v3.json").read_text())
    (tmp_path / "vllm.log").write_text("Config file not found at /v/N=2112,K=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json\n")
    (tmp_path / "kernels").symlink_to(harness.KERNELS)
    part = {"module": "package", "qualname": "f", "line": 1, "text": "def f(): pass\n"}
    function = {"version": 1, "closure": "sha256:" + "a" * 64, "name": "package:f", "parts": [part]}
    assert world.server.request("POST", "/v1/captures", {"functions": [function]}).json["functions"] == 1
    postgres.sql("""insert into builds (digest, kernel, arch, triton, variants, build, head)
                    select kernel, kernel, '', '', 1, '{}', '{}' from jobs order by id limit 1;
                    insert into captured_launches (function_id, token_id, digest, key, key_digest, arch, triton, environment, image,
                                                   document, build, kernel, space_digest, configs)
                    select f.id, f.token_id, j.key_digest, '{"rows": 64}', j.key_digest, '', '', e.identity, '', '{}', j.kernel, j.kernel,
                           j.space_digest, j.configs
                    from captured_functions f, jobs j join environments e on e.id = j.environment_id
                    order by j.id limit 1""", conninfo=world.server.database)
    # Of the channel that the page's policy proposes to: the policies' thread replaces those of channels without one.
    postgres.sql(f"""insert into proposals (channel, release, environment_digest, environment, tag, regime, winners, images,
                                            changes)
                     select 'candidate', r.digest, environment_digest, environment, made.tag, regime, winners, '{{}}', '{{}}'
                     from (values ('\\x{world.published['release'][7:]}'::bytea, 'default'),
                                  ('\\x{world.pinned['release'][7:]}', 'other')) made (digest, tag)
                     join releases r using (digest) order by made.tag""", conninfo=world.server.database)
    postgres.sql("""insert into poison (scope, subject, device_class, environment_id, kernel, config_values, reason, evidence)
                    select 'config', sha256('config'), sha256('hardware'), environment_id, kernel, '{"A": 1}', 'lost', '[]'
                    from jobs limit 1""", conninfo=world.server.database)
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=600, cwd=tmp_path, env={
        **os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": str(tmp_path), "WAVETUNE_URL": world.server.url,
        "WAVETUNE_TOKEN": world.server.token, "BUILD": "sha256:" + "0" * 64})
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    assert (tmp_path / ".cache/wavetune/current/json/cache.json").exists()
