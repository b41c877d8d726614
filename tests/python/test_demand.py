"""Lookups of deployments are reported, and no failure of a report reaches the program."""

import gc
import http.server
import json
import os
import subprocess
import sys
import threading
import types

import pytest
import triton
from conftest import KERNELS, ROOT
from triton.runtime.autotuner import Autotuner

from wavetune import demand
from wavetune._errors import PackError
from wavetune._pack.identity import put_identity

HERE = os.path.dirname(os.path.abspath(__file__))


class Keeper(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Reports arrive even on a slow machine."""
    monkeypatch.setattr(demand, "TIMEOUT_S", 600.0)
    monkeypatch.setattr(demand, "LAST_S", 600.0)


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeper)
    made.seen, made.status, made.url = [], 202, f"http://127.0.0.1:{made.server_port}"
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


class Function:
    """A jit function that launches nothing."""
    cache_key, __module__ = "key", "ops"

    def __init__(self):
        def add(n, m):
            pass

        add.__qualname__ = "add"
        self.fn = add

    def run(self, *args, **kwargs):
        return args


RECORD = {"kernel": "sha256:" + "1" * 64, "name": "add/triton", "function": {"module": "ops", "name": "add"},
          "key_names": ["n", "m"], "tuning_key": ["N", "M"]}


def make_tuner(function=None, timings=(3.0, 2.0), kind=Autotuner):
    left = [[ms] * 3 for ms in timings]
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    return kind(function or Function(), ["n", "m"], configs, ["n", "m"], None, None,
                do_bench=lambda call, quantiles: left.pop(0))


@pytest.fixture
def watching(server):
    """Makes a watcher of the real Autotuner; it posts when `post` is called."""
    made = []

    def make(url=server.url, records=(RECORD,), **more):
        watcher = demand.Watcher({"functions": list(records)}, url, "secret", {"rocm": "6.4.1"}, "sha256:image",
                                 interval_s=3600.0, **more)
        watcher.start()
        made.append(watcher)
        return watcher

    yield make
    for watcher in made:
        watcher.pending, watcher.events, watcher.caches = {}, [], []
        watcher.stop()


def post(watcher):
    watcher.collect()
    watcher.post()


def test_a_report_names_the_tag_and_regime_of_the_cache(watching, server):
    for more, stated in (({"tag": "chat", "regime": "warm"}, {"tag": "chat", "regime": "warm"}), ({"regime": "cold"}, {})):
        watcher = watching(**more)
        make_tuner().run(7, 7)
        post(watcher)
        body = server.seen[-1][2]
        assert {name: body[name] for name in ("tag", "regime") if name in body} == stated
        watcher.pending, watcher.events, watcher.caches = {}, [], []
        watcher.stop()


def test_hits_and_misses_are_posted_with_the_wavetune_key(watching, server):
    watcher = watching()
    tuner = make_tuner()
    for n in (4096, 4096, 4096):
        assert tuner.run(n, 16) == (n, 16)
    post(watcher)
    ((path, token, body),) = server.seen
    (item,) = body.pop("items")
    assert (path, token) == ("/v1/demand", "Bearer secret")
    assert body == {"environment": {"rocm": "6.4.1"}, "image": "sha256:image"}
    assert item.pop("tuning_ms") > 0
    assert item == {"kernel": RECORD["kernel"], "key": {"N": 4096, "M": 16}, "hits": 2, "misses": 1, "kernel_ms": 2.0}
    tuner.run(4096, 16)
    post(watcher)
    assert server.seen[1][2]["items"] == [{"kernel": RECORD["kernel"], "key": {"N": 4096, "M": 16}, "hits": 1, "misses": 0,
                                           "tuning_ms": None, "kernel_ms": None}]


def test_a_winner_that_a_cache_file_gave_is_no_miss(watching, server):
    watcher, tuner = watching(), make_tuner()
    tuner.cache[4096, 16] = tuner.configs[0]
    tuner.run(4096, 16)
    post(watcher)
    assert [(item["hits"], item["misses"]) for item in server.seen[0][2]["items"]] == [(1, 0)]


def test_an_autotuner_that_was_there_before_is_watched_too(watching, server):
    tuner = make_tuner()
    tuner.cache[4096, 16] = tuner.configs[0]
    watcher = watching()
    tuner.run(4096, 16)
    post(watcher)
    assert server.seen[0][2]["items"][0]["hits"] == 1


def test_a_function_that_the_identity_does_not_name_is_left_alone(watching, server):
    watching(records=[{**RECORD, "function": {"module": "other", "name": "add"}}])
    assert type(make_tuner().cache) is dict


def test_nothing_is_posted_without_lookups(watching, server):
    post(watching())
    assert server.seen == []


def test_stopping_restores_the_autotuner_and_posts_what_is_left(watching, server):
    init, bench, finders = Autotuner.__init__, Autotuner._bench, list(sys.meta_path)
    watcher = watching()
    make_tuner().run(1, 2)  # its cache is gone before it is read
    gc.collect()
    assert Autotuner.__init__ is not init and sys.meta_path != finders
    watcher.stop()
    assert (Autotuner.__init__, Autotuner._bench, sys.meta_path) == (init, bench, finders)
    assert server.seen[0][2]["items"][0]["misses"] == 1


def test_an_unreachable_server_costs_nothing_and_gets_the_reports_later(watching, server):
    watcher, tuner = watching(url="http://127.0.0.1:9"), make_tuner()
    tuner.run(4096, 16)
    assert watcher._report() is False and watcher._report() is False and watcher.failures == 2
    tuner.run(4096, 16)
    watcher.url = server.url
    assert watcher._report() is True
    assert [(item["hits"], item["misses"]) for item in server.seen[0][2]["items"]] == [(1, 1)]


def test_a_server_that_refuses_does_not_disturb_the_program(watching, server):
    watcher, tuner = watching(), make_tuner()
    server.status = 429
    tuner.run(4096, 16)
    assert watcher._report() is False and len(watcher.pending) == 1
    assert tuner.run(4096, 16) == (4096, 16)


def test_reports_beyond_the_limit_are_dropped_and_counted(watching, server, monkeypatch):
    monkeypatch.setattr(demand, "ITEMS_MAX", 2)
    watcher, tuner = watching(), make_tuner(timings=[1.0] * 20)
    for n in range(5):
        tuner.run(n, 16)
        tuner.run(n, 16)
    assert watcher.dropped == 6 and len(watcher.events) == 2  # three misses, and hits of three keys
    post(watcher)
    assert [item["key"]["N"] for item in server.seen[0][2]["items"]] == [0, 1]


def test_many_keys_are_posted_in_batches(watching, server, monkeypatch):
    monkeypatch.setattr(demand, "BATCH_MAX", 2)
    watcher, tuner = watching(), make_tuner()
    for n in range(5):
        tuner.cache[n, 1] = tuner.configs[0]
        tuner.run(n, 1)
    post(watcher)
    assert [len(body["items"]) for _, _, body in server.seen] == [2, 2, 1] and watcher.pending == {}


def test_a_triton_with_a_listener_reports_what_it_tuned(watching, server, monkeypatch):
    received = []
    knobs = types.SimpleNamespace(listener=lambda **event: received.append(event))
    monkeypatch.setattr(triton, "knobs", types.SimpleNamespace(autotuning=knobs))
    watcher, best = watching(), triton.Config({"BLOCK": 64})
    event = {"fn": Function(), "key": (8, 16, "torch.float16"), "best_config": best, "configs_timings": {best: [0.5, 0.4, 0.6]},
             "duration": 2.0}
    knobs.listener(**event, cache_hit=False)
    knobs.listener(**event, cache_hit=True)
    assert len(received) == 2
    post(watcher)
    assert server.seen[0][2]["items"] == [{"kernel": RECORD["kernel"], "key": {"N": 8, "M": 16}, "hits": 0, "misses": 1,
                                           "tuning_ms": 2000.0, "kernel_ms": 0.5}]


def test_a_failure_of_the_watcher_does_not_reach_the_program(watching, monkeypatch):
    monkeypatch.setattr(demand._Cache, "benched", lambda *_: 1 / 0)
    watcher = watching(records=[RECORD, {**RECORD, "function": {"module": "ops", "name": "other"}}])
    assert make_tuner().run(1, 2) == (1, 2) and watcher.failures == 2  # two configs
    broken = make_tuner(types.SimpleNamespace(fn=Function().fn, run=lambda *args, **_: args))
    assert broken.run(3, 4) == (3, 4) and watcher.failures == 3
    watcher.patch(types.SimpleNamespace(__name__="triton_dejavu.autotuner"))
    assert watcher.failures == 4


@pytest.mark.parametrize("record, key, wanted", [
    (RECORD, (1, 2, "torch.float16"), {"N": 1, "M": 2}),
    (RECORD, ("4096", "True", "torch.float16"), {"N": 4096, "M": True}),  # as triton-dejavu keeps them
    (RECORD, ("1.5", "x"), {"N": 1.5, "M": "x"}), (RECORD, ("01", None), {"N": "01", "M": None}),
    (RECORD, (1,), None), (RECORD, ((1, 2), 3), None), (RECORD, (float("inf"), 3), None),
    ({**RECORD, "tuning_key": ["N", "2 * N"]}, (1, 2), None), ({**RECORD, "tuning_key": ["N", "N"]}, (1, 2), None),
    ({**RECORD, "tuning_key": ["N", "N"]}, (2, 2), {"N": 2}), ({**RECORD, "tuning_key": []}, (1, 2), None)])
def test_the_key_of_an_autotuner_is_read_as_in_its_record(record, key, wanted):
    assert demand.wavetune_key(record, key) == wanted


def test_a_fork_counts_anew_and_has_a_thread_of_its_own(watching, server):
    watcher, tuner = watching(), make_tuner()
    tuner.cache[4096, 16] = tuner.configs[0]
    tuner.run(4096, 16)
    child = os.fork()
    if child == 0:
        try:
            tuner.run(4096, 16)
            tuner.run(4096, 16)
            watcher.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    post(watcher)
    assert sorted(body["items"][0]["hits"] for _, _, body in server.seen) == [1, 2]


@pytest.mark.parametrize("environment", [
    {}, {"WAVETUNE_URL": "http://127.0.0.1:9"}, {"WAVETUNE_TOKEN": "t", "WAVETUNE_URL": "u", "WAVETUNE_IDENTITY": "/none"},
    {"WAVETUNE_TOKEN": "t", "WAVETUNE_URL": "u", "WAVETUNE_IDENTITY": __file__}])
def test_without_its_requirements_nothing_is_watched_and_nothing_is_printed(monkeypatch, capfd, environment):
    for name in ("WAVETUNE_URL", "WAVETUNE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert demand.watch() is False
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("url, insecure, goes", [
    ("https://tuning.example", None, True), ("http://127.0.0.1:7200", None, True), ("http://[::1]:7200", None, True),
    ("http://localhost", None, True), ("http://tuning.example", None, False), ("http://192.0.2.1:7200", "0", False),
    ("http://127.0.0.1.example", None, False), ("http://tuning.example", "1", True)])
def test_a_token_goes_over_plain_http_to_loopback_only_unless_allowed(monkeypatch, capfd, url, insecure, goes):
    for name, value in (("WAVETUNE_URL", url), ("WAVETUNE_TOKEN", "wt_s3"), ("WAVETUNE_INSECURE_HTTP", insecure)):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    settings = demand._settings({"identity": {}})
    output = capfd.readouterr().err
    assert (settings is not None) == goes and ("WAVETUNE_INSECURE_HTTP=1" in output) == (not goes) and "s3" not in output
    if not goes:
        assert output.count("\n") == 1 and not demand.watch(identity={})
        with pytest.raises(PackError, match="unencrypted"):
            put_identity("{}", "sha256:0", dict(os.environ))


def test_importing_it_imports_neither_triton_nor_a_client():
    script = "import sys, wavetune.demand; assert not {'triton', 'torch', 'urllib.request', 'ssl', 'gc'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, check=True)


def run_watched(server, tmp_path, *argv, **more):
    identity = {"version": 1, "triton": {"version": "3.6.0"}, "torch": "2.9.1", "functions": [{
        "name": "scale/triton", "function": {"module": "scaled", "name": "scale_kernel", "qualname": "scale_kernel"},
        "key_names": ["n"], "tuning_key": ["n"]}]}
    (tmp_path / "identity.json").write_text(json.dumps(identity))
    environment = {**os.environ, "PYTHONPATH": f"{HERE}/unhurried:{ROOT / 'python'}:{KERNELS}:{HERE}",
                   "TRITON_CACHE_DIR": str(tmp_path / "c"),
                   "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": "secret", "PYTHONDONTWRITEBYTECODE": "1",
                   "WAVETUNE_IDENTITY": str(tmp_path / "identity.json"), **more}
    return subprocess.run([sys.executable, "-m", "wavetune.demand", *argv], env=environment, capture_output=True, text=True)


def test_a_program_is_watched_from_its_start_to_its_end(server, tmp_path):
    done = run_watched(server, tmp_path, f"{HERE}/deployment.py", "gfx942", "run", "4096", "4096")
    assert done.returncode == 0 and json.loads(done.stdout)["benchmarked"] == 2, done.stderr
    ((_, _, body),) = server.seen
    assert body["environment"] == {"torch": "2.9.1", "triton": "3.6.0"} and body["image"].startswith("sha256:")
    (item,) = body["items"]
    assert (item["kernel"], item["key"], item["hits"], item["misses"], item["kernel_ms"]) == (
        "scale/triton", {"n": 4096}, 1, 1, 1.0)


def test_a_module_runs_unwatched_on_request(server, tmp_path):
    done = run_watched(server, tmp_path, "-m", "json.tool", "--help", WAVETUNE_DEMAND="0")
    assert done.returncode == 0 and "json.tool" in done.stdout and server.seen == []
    assert "usage: python3 -m wavetune.demand" in run_watched(server, tmp_path).stderr
