"""False answers to agents and fetches: forged, huge, endless, slow, cut and redirected ones. The programs report the fault in a
sentence, send no more requests than to a correct server, and continue once the answers are correct again."""

import http.server
import json
import re
import subprocess
import time

import harness
import pytest
from harness import BUILD, FakeServer, small_kernel, wait_until, wavetune
from test_fetch import ENVIRONMENT, IDENTITY, Raw, World, canonical, digest, http as http_text, release_of

QUICK = ("--screen-rounds", "3", "--final-rounds", "10")
# The real server soon takes back the configs of a lease that the agent never received.
BRIEF = ("--lease-ms", "3000", "--heartbeat-ms", "500")
REQUESTS_PER_S = 70  # two devices of renewals every 20 ms would be 100
WATCHED_S = 2


class FalseProxy(harness.Loopback):
    """A proxy for a server. `falsify(method, path, ask)`, if set, answers in its place: `ask()` gets the true (status, body). A
    result of None sends that, a pair or triple (with headers) is sent, bytes are sent raw, and a function is called with the
    connection's file."""

    def __init__(self, server):
        false_proxy = self
        self.falsify, self.requests, self.token = None, [], server.token

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                false_proxy.requests.append((self.command, self.path))
                token = self.headers["Authorization"].split()[1]

                def ask():
                    answer = server.request(self.command, self.path, body=body or None, token=token)
                    return answer.status, answer.body

                output = false_proxy.falsify(self.command, self.path, ask) if false_proxy.falsify else None
                if callable(output) or isinstance(output, bytes):
                    self.close_connection = True
                    try:
                        output(self.wfile) if callable(output) else self.wfile.write(output)
                    except OSError:  # the agent closed the connection
                        pass
                    return
                status, body, *headers = output or ask()
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in (headers[0] if headers else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any

        self.listen(Handler)


def says(method, path, *answer):
    """Always this answer to that request."""
    return lambda m, p, _: answer if m == method and re.fullmatch(path, p) else None


def sends(path, raw):
    return lambda _, p, __: raw if re.fullmatch(path, p) else None


def changes(path, **members):
    """The true answer with other members."""
    def falsify(_, p, ask):
        if not re.fullmatch(path, p):
            return None
        status, body = ask()
        return (status, {**json.loads(body), **members}) if status in (200, 201) and body else (status, body)

    return falsify


def both(*answers):
    def falsify(method, path, ask):
        return next((output for one in answers if (output := one(method, path, ask)) is not None), None)

    return falsify


def endless(out):
    out.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        out.write(b" " * (1 << 20))


def slow(out):
    out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        out.write(b" ")
        out.flush()
        time.sleep(0.1)


AGENTS, LEASES, RENEW, RESULTS = "/v1/agents", "/v1/leases", "/v1/leases/[^/]+/renew", "/v1/leases/[^/]+/results"
UNSTORED = says("POST", RESULTS, 503, {"detail": "not now"})  # the agent keeps the lease meanwhile
HUGE = 2**63 - 1
FALSE_ANSWERS = {
    "an array for everything": (lambda *_: (200, []), 'must be an object'),
    "an id of another type": (says("POST", AGENTS, 200, {"agent": 7}), '"agent" must be a string'),
    "an id that is a path": (says("POST", AGENTS, 200, {"agent": "../../gc"}), "agent's id is not"),
    "a token of two lines": (says("POST", AGENTS, 200, {"agent": "ab", "token": "a\nb"}), "token is not 1 to 256"),
    "a rotation in 300 million years": (changes(AGENTS, rotate_in_ms=HUGE), '"rotate_in_ms" is 9223372036854775807'),
    "an endless answer": (sends(AGENTS, endless), "16777216 bytes"),
    "a slow answer": (sends(AGENTS, slow), "timed out"),
    "a cut answer": (sends(AGENTS, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"agent\": "), "ended after 10 bytes"),
    "no HTTP": (sends(AGENTS, b"\0\1\2\3" * 1000), "no answer from"),
    "a heartbeat of another type": (says("POST", "/v1/agents/[^/]+/heartbeat", 200, {"draining": "perhaps"}),
                                    '"draining" must be a boolean'),
    "a lease of another type": (says("POST", LEASES, 200, {"lease": 5}), "invalid lease"),
    "a lease with a number that is none": (says("POST", LEASES, 200, b'{"lease": "1", "epoch": 1e999}'),
                                           "POST /v1/leases is not a JSON document"),
    "a lease of configs that are not there": (changes(LEASES, configs=[[0, 1], [2**40, 5]]), "no config 1099511627780"),
    "a lease of 2**62 configs": (changes(LEASES, configs=[[0, 2**62]]), "no config 4611686018427387903"),
    "a lease of another kernel": (changes(LEASES, kernel="sha256:" + "0" * 64), "its digest differs"),
    "a lease of another agent": (changes(LEASES, lease="99-anothers"), "lease=99-anothers"),
    "a lease that has ended": (changes(LEASES, expires_in_ms=1, renew_every_ms=1), "lease ended before"),
    "a lease of nothing": (changes(LEASES, configs=[]), "at least one config"),
    "a lease to be renewed all the time": (both(changes(LEASES, renew_every_ms=1), UNSTORED), "in the spool"),
    "a renewal for ever": (both(says("POST", RENEW, 200, {"expires_in_ms": HUGE}), UNSTORED), '"expires_in_ms" is 9223372036854775807'),
    "a renewal of what is not there": (both(changes(RENEW, configs=[[5, 1], [0, 2]]), UNSTORED), "ascending order"),
    "another source": (says("GET", "/v1/blobs/.*", 200, b"int main(void);"), "manifest names"),
    "a source without an end": (sends("/v1/blobs/.*", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nint"), "ended after 3 bytes"),
}


@pytest.fixture
def submit(database, start, tmp_path):
    """A server with submit.job(run), which queues a job for this machine, and submit.wait(job)."""
    server = start(harness.Server, database, options=BRIEF)
    here = subprocess.run([BUILD / "wavetune-agent", "env", "--device", "cpu0"], capture_output=True, text=True, check=True).stdout
    kernel = small_kernel(tmp_path / "kernel")

    class Submit:
        def __init__(self):
            self.server = server

        def job(self, run):
            done = wavetune(server, "submit", kernel, "--key", "n=1003", "--environment", here, "--run", run, "--json")
            return json.loads(done.stdout)[0]["job"]

        def wait(self, job):
            wait_until(lambda: server.get(f"/v1/jobs/{job}")["state"] == "done", 90, f"job {job}")

    return Submit()


def assert_few_requests(false_proxy):
    """Counts for some seconds."""
    before, began = len(false_proxy.requests), time.monotonic()
    wait_until(lambda: time.monotonic() - began > WATCHED_S, 10, "some seconds")
    requests = false_proxy.requests[before:]
    assert len(requests) < REQUESTS_PER_S * (time.monotonic() - began), (len(requests), requests[-5:])


@pytest.mark.parametrize("name", FALSE_ANSWERS)
def test_an_agent_logs_a_false_answer_does_not_retry_fast_and_continues_with_correct_answers(name, submit, start):
    falsify, sentence = FALSE_ANSWERS[name]
    submit.job("with false answers")
    with FalseProxy(submit.server) as false_proxy:
        false_proxy.falsify = falsify
        agent = start(harness.Agent, false_proxy, options=QUICK)
        wait_until(lambda: sentence in agent.messages or agent.process.poll() is not None, 60, sentence)
        assert_few_requests(false_proxy)
        assert agent.process.poll() is None and sentence in agent.messages, agent.messages[-3000:]
        false_proxy.falsify = None
        submit.wait(submit.job("with true answers"))
        assert agent.stop() == 0
    assert not (agent.state / "refused.jsonl").exists() or name == "a lease of another agent"


def test_an_answer_decides_whether_a_lease_waits_for_a_source(submit, start):
    plain, waits, ends = {"detail": "x"}, "waits for the kernel's file", "failed lease="
    cases = [(302, plain, ends), (401, plain, ends), (403, plain, ends), (404, plain, ends), (422, plain, ends),
             (408, plain, waits), (429, plain, waits), (500, plain, waits), (503, plain, waits), (504, b"<html>", waits),
             (500, {"detail": "x", "kind": "missing"}, ends), (422, {"detail": "x", "kind": "unavailable"}, waits)]
    with FalseProxy(submit.server) as false_proxy:
        for n, (status, body, word) in enumerate(cases):
            submit.job(f"of {n}")
            false_proxy.falsify = says("GET", "/v1/blobs/.*", status, body)
            agent = start(harness.Agent, false_proxy, options=QUICK, name=f"a{n}")
            wait_until(lambda: waits in agent.messages or ends in agent.messages, 30, f"{status} to be logged")
            assert word in agent.messages and f"the server answered {status} to GET /v1/blobs/" in agent.messages, agent.messages
            assert agent.stop() == 0


def test_leases_that_have_ended_do_not_make_an_agent_poll_fast(submit, start):
    first, leases = submit.job("first"), []
    with FalseProxy(submit.server) as false_proxy:
        def record(_, path, ask):
            if path != LEASES:
                return None
            status, body = ask()
            if status == 200:
                leases.append(json.loads(body))
            return status, body

        def replay(_, path, __):
            leases[0]["epoch"] += 1
            return (200, {**leases[0], "expires_in_ms": 1, "renew_every_ms": 1}) if path == LEASES else None

        false_proxy.falsify = record
        agent = start(harness.Agent, false_proxy, options=QUICK)
        submit.wait(first)
        false_proxy.falsify = replay
        wait_until(lambda: "lease: stopped" in agent.messages, 60, "a lease that has ended")
        assert_few_requests(false_proxy)
        false_proxy.falsify = None
        submit.wait(submit.job("second"))
        assert agent.stop() == 0


def test_an_agent_follows_no_redirect(database, start, tmp_path):
    server = start(harness.Server, database, options=BRIEF)
    with FakeServer(lambda *_: (200, {"agent": "ab"})) as elsewhere, FalseProxy(server) as false_proxy:
        false_proxy.falsify = says("POST", AGENTS, 307, b"<html>", {"Location": f"{elsewhere.url}/v1/agents"})
        agent = start(harness.Agent, false_proxy)
        wait_until(lambda: "redirects" in agent.messages, 30, "the sentence")
        false_proxy.falsify = None
        wait_until(lambda: server.items("/v1/agents"), 60, "the agent")
        assert not elsewhere.requests, "no other server got the token"


# wavetune fetch. More false answers are in test_fetch.py and test_signing.py.

@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    with world.fake:
        yield world


@pytest.mark.parametrize("etag", [b'"\xff\xfe"', b'"a\x01b"', b'"' + b"e" * 60000 + b'"'], ids=["no UTF-8", "control", "long"])
def test_an_entity_tag_that_cannot_be_sent_back_is_ignored(world, etag):
    entry, release = json.dumps(world.entry).encode(), release_of()
    tagged = http_text(entry).replace(b"\r\n\r\n", b"\r\nETag: " + etag + b"\r\n\r\n", 1)
    with Raw(lambda path: tagged if path == "/v1/cache" else http_text(release), False) as raw:
        world.fetch(url=raw.url)
        world.fetch(url=raw.url)
    world.publish(release_of(1024), 2)
    world.fetch()
    assert world.block() == 1024


def test_a_fetch_forgets_an_entity_tag_that_an_older_one_kept_and_cannot_send(world):
    world.fetch()
    state = world.cache / ".fetch.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "etag": "a\u0001b"}))
    world.publish(release_of(1024), 2)
    world.fetch()
    assert world.block() == 1024


def test_a_fetch_follows_no_redirect(world):
    world.fetch()
    with FakeServer(lambda *_: (200, world.entry)) as elsewhere:
        world.other["/v1/cache"] = (302, b"", {"Location": f"{elsewhere.url}/v1/cache"})
        assert "answered 302" in world.fetch("--tag", "other", expect=5).stderr
        assert not elsewhere.requests
    assert world.block() == 256


def test_a_slow_answer_costs_no_more_than_the_budget(world):
    world.fetch()
    with FalseProxy(world_server(world)) as false_proxy:
        false_proxy.falsify = sends("/v1/cache.*", slow)
        done = world.fetch("--tag", "slow", "--budget-ms", "500", url=false_proxy.url, expect=5, environment={"WAVETUNE_TOKEN": "t"})
    assert "last good cache" in done.stderr and world.block() == 256


def world_server(world):
    class Server:
        token = "t"

    return Server()


def test_an_answer_of_a_server_does_not_control_the_terminal(world):
    world.fetch()
    world.other["/v1/cache"] = (400, {"detail": "\x1b]0;owned\x07\x1b[2J\u009b2Jno\r"})
    done = world.fetch("--tag", "other", expect=5)
    assert "no" in done.stderr and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stderr), repr(done.stderr)


def forged(name, key, values, config, exports, format):
    """A release, with its manifest, that names paths where it can."""
    manifest = {"exports": {format: exports}, "key": key, "language": "external", "name": name}
    release = {"environment": ENVIRONMENT, "tag": "default", "version": 2,
               "kernels": [{"configs": [{"values": config}], "kernel": digest(canonical(manifest)), "key": key, "name": name,
                            "provenance": [{"format": format, "origin": "imported", "source": "../../../escaped"}],
                            "winners": [[values, 0, 0, [], 0]]}]}
    return manifest, canonical(release)


UP = "../../../../escaped"


@pytest.mark.parametrize("forgery", [
    forged(UP, ["n"], [UP], {"BLOCK": UP}, {}, "triton"),
    forged("inductor", ["file", "configs_hash"], [f"{UP}/{'a' * 64}.best_config", "c" * 64], {"XBLOCK": 1}, {}, "inductor"),
    forged("moe", ["E", "N", "M", "dtype"], [8, 64, 16, UP],
           {"BLOCK_SIZE_K": 64, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "GROUP_SIZE_M": 1},
           {"E": "E", "N": "N", "M": "M", "dtype": "dtype"}, "vllm-moe"),
    forged("tunableop", ["op", "params"], [UP, UP], {"solution": UP},
           {"validators": [["PT_VERSION", UP], ["GCN_ARCH_NAME", UP]]}, "tunableop"),
], ids=["names", "inductor", "moe", "tunableop"])
def test_a_forged_release_writes_nothing_outside_its_folder(world, forgery):
    manifest, release = forgery
    (world.folder / "identity.json").write_text(json.dumps({**IDENTITY, "functions": []}))
    world.publish(release)
    world.other[f"/v1/kernels/{digest(canonical(manifest))}"] = (200, {"manifest": manifest})
    formats = [word for f in ("json", "triton", "inductor", "dejavu", "tunableop", "vllm-moe") for word in ("--format", f)]
    world.fetch(*formats, "--identity", world.folder / "identity.json")
    assert world.files("json") == ["cache.json"]
    assert sorted(p.name for p in world.folder.iterdir()) == ["cache", "identity.json"]
    assert not [p for p in world.folder.rglob("*escaped*")]
