"""Agents and the command line with several servers on one database, some of which are away."""

import json
import os
import socket
import subprocess
import threading

import harness
import pytest
from certificates import Authority, TlsServer
from harness import FakeServer, wait_until, wavetune
from test_agent import PATIENT, QUICK, assert_nothing_twice, small_job, state_of

DEAD = "http://127.0.0.1:9"


class Urls:
    """In place of a server, for harness.Agent and wavetune()."""

    def __init__(self, *servers):
        self.url = ",".join(getattr(s, "url", s) for s in servers)
        self.token = next(s.token for s in servers if hasattr(s, "token"))


@pytest.fixture
def two(start, database):
    return [start(harness.Server, database, options=("--heartbeat-ms", "200", "--lease-ms", "30000")) for _ in range(2)]


def test_an_agent_goes_on_with_the_next_server_in_the_middle_of_a_campaign(two, start, tmp_path):
    gated = harness.GatedKernel(tmp_path / "kernel", {"REPEAT": [1, 2, 4, 8], "TURN": [0, 1, 2]})
    one = start(harness.Agent, Urls(*two), name="one", options=PATIENT)
    wait_until(lambda: two[0].items("/v1/agents"), 60, "the agent")
    job = small_job(two[0], gated.folder)
    gated.wait_reached()
    two[0].kill()
    gated.open()
    wait_until(lambda: state_of(two[1], job) == "done", 120, "the job")
    assert_nothing_twice(two[1], job)
    rows = two[1].items(f"/v1/jobs/{job}/measurements")
    assert not [m for m in rows if m["late"]] and {m["config"] for m in rows} == set(range(12)), "nothing was lost"
    assert len(two[1].items("/v1/agents")) == 1
    again = small_job(two[1], gated.folder, run="again")
    wait_until(lambda: state_of(two[1], again) == "done", 120, "new work, from the second server alone")
    assert one.stop() == 0


def test_an_agent_enrols_with_the_second_server_when_the_first_is_away(two, start, tmp_path):
    two[0].kill()
    one = start(harness.Agent, Urls(*two), name="one", options=QUICK)
    wait_until(lambda: two[1].items("/v1/agents"), 60, "the agent")
    job = small_job(two[1], harness.small_kernel(tmp_path / "kernel"))
    wait_until(lambda: state_of(two[1], job) == "done", 120, "the job")
    assert "cannot enrol yet" not in one.messages


def test_the_command_line_takes_several_urls_in_every_form(two, tmp_path):
    token = {"WAVETUNE_TOKEN": two[0].token}
    config = tmp_path / "config.json"
    expected = wavetune(two[1], "agents", "--json").stdout
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_")} | token

    def run(*arguments, **more):
        return subprocess.run([str(harness.BUILD / "wavetune"), "agents", "--json", *arguments], capture_output=True, text=True,
                              env={**environment, **more}, timeout=600)

    for done in (run("--url", DEAD, "--url", two[0].url), run("--url", f"{DEAD},{two[0].url}"),
                 run(WAVETUNE_URL=f"{DEAD},{two[0].url}")):
        assert done.returncode == 0 and done.stdout == expected, done
    for urls in ([DEAD, two[0].url], f"{DEAD},{two[0].url}", two[0].url):
        config.write_text(json.dumps({"url": urls}))
        done = run("--config", config)
        assert done.returncode == 0 and done.stdout == expected, (urls, done)
    done = run("--url", DEAD, "--url", "http://127.0.0.1:10")
    assert done.returncode == 3 and "none of the 2 servers answers" in done.stderr and done.stderr.count("\n") == 1, done
    done = run("--url", two[0].url, "--url", "tuning.example")
    assert done.returncode == 2 and "http:// or https://" in done.stderr
    done = run("--url", two[0].url, "--url", "http://192.0.2.1")
    assert done.returncode == 2 and "http://192.0.2.1" in done.stderr and "--insecure-http" in done.stderr


def test_a_server_that_answers_503_is_left_for_the_next(two):
    with FakeServer(lambda method, path: (503, {"detail": "away"})) as away:
        done = wavetune(Urls(away, two[0]), "agents", "--json", token=two[0].token)
        assert json.loads(done.stdout) == []
        assert len(away.requests) == 1
        done = wavetune(Urls(away, DEAD), "agents", check=False)
        assert done.returncode == 3 and "away" in done.stderr


def test_a_change_is_not_sent_twice_where_the_first_server_may_have_made_it(two):
    """The first server reads the request and closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    got = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                got.append(connection.recv(65536).split(b"\r\n")[0])

    threading.Thread(target=serve, daemon=True).start()
    cuts = f"http://127.0.0.1:{listener.getsockname()[1]}"
    urls = Urls(cuts, two[0])
    try:
        done = wavetune(urls, "token", "make", "once", "--role", "reader", check=False)
        assert done.returncode == 3 and got == [b"POST /v1/tokens HTTP/1.1"], (done, got)
        assert "once" not in wavetune(two[0], "token", "list").stdout
        assert wavetune(urls, "token", "list").returncode == 0, "what only reads is sent to the next"
    finally:
        listener.close()


def test_certificates_are_checked_at_every_server(start, database, tmp_path):
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    good, bad = (start(TlsServer, database, a, a.server()) for a in (authority, foreign))
    done = wavetune(Urls(bad, good), "token", "list", environment=good.client.variables)
    assert done.returncode == 0, "the first is not trusted and gets no token"
    assert "POST" not in bad.messages and not [line for line in bad.messages.splitlines() if "/v1/tokens" in line]
    done = wavetune(Urls(bad, bad), "token", "list", check=False, environment=good.client.variables)
    assert done.returncode == 3 and "certificate" in done.stderr
    agent_ = start(harness.Agent, Urls(bad, good), name="one", options=QUICK, environment=good.client.variables)
    wait_until(lambda: "agent: enrolled" in agent_.messages, 60, "its enrolment with the trusted server")
    assert agent_.stop() == 0
