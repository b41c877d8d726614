"""deploy/container/entrypoint.sh under sh, against a real server: whatever there is to fetch, the program starts."""

import hashlib
import json
import os
import subprocess

import harness
import pytest
from harness import BUILD, SOURCE, wavetune

ENTRYPOINT = SOURCE / "deploy/container/entrypoint.sh"
ENVIRONMENT = {"rocm": "6.4.1", "torch": "2.9.0", "triton": "3.3.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942",
               "compute_units": 304, "partition": "SPX/NPS1"}
TABLE = "dejavu_0.7/triton_3.3.1/rocm_6.4.1/gpu_AMD_Instinct_MI300X/add/" + "/".join(
    f"{part}-{digest}" for part, digest in
    (("autotune_config", "a" * 64), ("code_version", "b" * 64), ("tune_features", hashlib.sha256(b"n").hexdigest()),
     ("kernel_configs", "d" * 64))) + "/default/cache.json"
KEY = "('4096', 'torch.float16')"
SHOW = 'printf "%s|%s|%s|%s\\n" "${TRITON_DEJAVU_STORAGE-}" "$WAVETUNE_FETCH_STATUS" "${WAVETUNE_TOKEN-}" "$*"'


def table(folder, block):
    """A table as triton-dejavu writes it, of one entry."""
    config = (f"BLOCK: {block}, num_warps: 4, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, "
              "reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None")
    path = folder / TABLE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({
        "signature": "JITFunction(m:add)", "total_bench_time_s": 1.5, "evaluated_configs": 2, "keys": ["n"],
        "cache": {KEY: config}, "timings": {KEY: [0.25]},
        "timings_data": {"labels": ["ms"], "rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": False}}, indent=4))
    return folder


class Node:
    """A machine that starts containers, with the publisher's key and a token in files."""

    def __init__(self, server, folder):
        self.server, self.folder, self.cache = server, folder, folder / "cache"
        wavetune(None, "key", "new", folder / "publisher")
        (folder / "token").write_text(harness.make_token(server.database, "node", "reader") + "\n")

    def publish(self, block):
        wavetune(self.server, "import", "dejavu", table(self.folder / "tables", block), "--environment",
                 json.dumps(ENVIRONMENT))
        wavetune(self.server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "stable", "--sign-key",
                 self.folder / "publisher")

    def start(self, *program, expect=0, **variables):
        """(storage, fetch's status, token, arguments) that the program sees, and the text on stderr."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_")}
        variables = {"PATH": f"{BUILD}:{os.environ['PATH']}", "WAVETUNE_URL": self.server.url, "WAVETUNE_TO": self.cache,
                     "WAVETUNE_TOKEN_FILE": self.folder / "token", "WAVETUNE_FORMATS": "dejavu json",
                     "WAVETUNE_TRUSTED_KEYS": self.folder / "publisher.pub", "WAVETUNE_BUDGET_MS": "300000",
                     "WAVETUNE_ENVIRONMENT": json.dumps(ENVIRONMENT)} | variables
        program = program or ("sh", "-c", SHOW, "sh", "serve it", "*")
        done = subprocess.run(["sh", ENTRYPOINT, *program], capture_output=True, text=True, timeout=600,
                              env={**clean, **{k: str(v) for k, v in variables.items()}})
        assert done.returncode == expect, done
        return done.stdout.rstrip("\n").split("|"), done.stderr


@pytest.fixture(scope="module")
def node(postgres, tmp_path_factory):
    folder = tmp_path_factory.mktemp("node")
    server = harness.Server(postgres.database(), folder, options=harness.UNHURRIED)
    try:
        node = Node(server, folder)
        node.publish(256)
        yield node
    finally:
        server.kill()


def test_the_program_starts_with_the_newest_cache_and_without_the_token(node):
    storage = f"{node.cache}/current/dejavu"
    assert node.start() == ([storage, "0", "", "serve it *"], "")
    content = (node.cache / "current/dejavu" / TABLE).read_bytes()
    assert content == (node.folder / "tables" / TABLE).read_bytes(), "an imported table is exported unchanged"
    assert node.start()[0] == [storage, "0", "", "serve it *"]
    node.publish(1024)
    assert node.start()[0][:2] == [storage, "0"]
    assert b"BLOCK: 1024" in (node.cache / "current/dejavu" / TABLE).read_bytes()


def test_a_server_that_is_away_leaves_the_last_good_cache(node):
    node.start()
    (storage, status, *_), output = node.start(WAVETUNE_URL="http://127.0.0.1:9")
    assert (storage, status) == (f"{node.cache}/current/dejavu", "5") and "last good cache" in output


def test_a_release_without_winners_for_the_formats_has_another_status_than_an_absent_server(node):
    (_, status, *_), output = node.start(WAVETUNE_FORMATS="vllm-moe", WAVETUNE_TO=node.folder / "other")
    assert status == "8" and "fetch ended with 8" in output


def test_without_any_cache_the_program_still_starts(node):
    nothing = {"WAVETUNE_URL": "http://127.0.0.1:9", "WAVETUNE_TO": node.folder / "none"}
    (storage, status, _, arguments), output = node.start(**nothing)
    assert (storage, status, arguments) == ("", "6", "serve it *")
    assert output.splitlines()[-1].startswith("wavetune-entrypoint: fetch ended with 6")


@pytest.mark.parametrize("variables,status", [
    ({"WAVETUNE_FORMATS": "xml"}, "2"), ({"WAVETUNE_FORMATS": "*"}, "2"), ({"WAVETUNE_TOKEN_FILE": "/nowhere"}, "5"),
    ({"WAVETUNE_BUDGET_MS": "many"}, "2"), ({"WAVETUNE_TRUSTED_KEYS": "/nowhere"}, "2"), ({"WAVETUNE_TO": "/dev/null/x"}, "6")],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value)
def test_wrong_settings_do_not_prevent_the_start_of_the_program(node, tmp_path, variables, status):
    node.start()
    patient = tmp_path / "timeout"  # an invalid budget means 2 s, which is too short for a slow machine
    patient.write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    patient.chmod(0o755)
    (_, ended, _, arguments), output = node.start(PATH=f"{tmp_path}:{BUILD}:{os.environ['PATH']}", **variables)
    assert (ended, arguments) == (status, "serve it *") and output


def test_a_fetch_that_crashes_hangs_or_is_absent_does_not_prevent_the_start_of_the_program(node, tmp_path):
    fake = tmp_path / "wavetune"
    fake.touch(0o755)
    for script, budget, statuses in (("kill -SEGV $$", 300000, ["139"]), ("echo \"export X='unclosed\"; exit 3", 300000, ["3"]),
                                     ("exec sleep 600", 1, ["124", "137"])):  # the second one if it took long to die
        fake.write_text(f"#!/bin/sh\n{script}\n")
        variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "WAVETUNE_BUDGET_MS": budget}
        (storage, ended, _, arguments), output = node.start(**variables)
        assert (storage, arguments) == ("", "serve it *") and ended in statuses and "starting" in output
    assert node.start(PATH="/usr/bin:/bin")[0][1] == "127"


def test_the_program_is_the_process_and_its_exit_code_the_containers(node):
    assert node.start("sh", "-c", "exit 7", expect=7)
    (pid, shell), _ = node.start("sh", "-c", 'echo "$$|$PPID"')
    assert int(shell) == os.getpid() and pid != shell
