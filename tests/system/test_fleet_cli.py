"""wavetune top, agents, campaigns and cost, and the formats of -o."""

import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import harness
import pytest
from hands import SMALL, Hand, configs_of, hands, kernel, server, submit  # noqa: F401 (fixtures)
from harness import BUILD, PATIENCE, FakeServer, wait_until, wavetune

sys.path.insert(0, str(harness.SOURCE / "bench"))
import demo_fleet  # noqa: E402


@pytest.fixture
def world(server, hands, submit):
    """Two nodes of two devices; one job is done, one is being measured, two wait."""
    busy = hands("node2", devices=("cpu0", "cpu1"))
    hands("node10")
    submit(SMALL, tag="nightly", run="first")
    busy.work(device_us=1_800_000)
    for run in ("second", "third", "fourth"):
        submit(SMALL, tag="nightly", run=run)
    lease = busy.pull().json
    assert busy.renew(lease, configs_of(lease)[0]).status == 200
    wait_until(lambda: server.get("/v1/fleet")["devices"]["measuring"] == 1, 30, "the device to measure")
    wait_until(lambda: len(server.get("/v1/campaigns")["items"]) == 4, 30, "the campaigns")
    return server


def rows(server, *arguments):
    return list(csv.DictReader(io.StringIO(wavetune(server, *arguments, "-o", "csv").stdout)))


def test_agents_are_a_line_a_node_and_wide_a_line_a_device(world):
    lines = wavetune(world, "agents").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["host", "node2", "node10"]
    assert re.search(r"^node2 +1 measuring, 1 idle +test/leases ", lines[1]) and re.search(r"^node10 +1 idle ", lines[2])
    wide = wavetune(world, "agents", "-o", "wide").stdout.splitlines()
    assert [line.split()[:3] for line in wide[1:]] == [["node2", "cpu0", "measuring"], ["node2", "cpu1", "idle"],
                                                       ["node10", "cpu0", "idle"]]
    assert '{"n":64}' in wide[1] and "nightly" in wide[1] and "screen" in wide[1]


def test_agents_as_csv_and_json_have_what_each_device_does(world):
    device = rows(world, "agents")[0]
    assert (device["host"], device["device"], device["kernel"], device["left"]) == ("node2", "cpu0", "test/leases", "3")
    assert json.loads(device["key"]) == {"n": 64}
    listed = json.loads(wavetune(world, "agents", "--json").stdout)
    assert listed == json.loads(wavetune(world, "agents", "-ojson").stdout)
    states = {agent["name"]: [device["state"] for device in agent["devices"]] for agent in listed}
    assert states == {"node2": ["measuring", "idle"], "node10": ["idle"]}
    assert all(device["environment"] for agent in listed for device in agent["devices"]), "and all that the agent stated"


def test_a_drained_device_shows_its_reason_and_who_drained_it(world):
    agent = rows(world, "agents")[-1]["agent"]
    wavetune(world, "agents", "drain", agent, "--reason", "a new fan")
    assert "a new fan" in wavetune(world, "agents").stdout
    assert re.search(r"drained: a new fan \(by admin-\d+\)", wavetune(world, "agents", "-o", "wide").stdout)


def test_campaigns_show_how_far_they_are(world):
    lines = wavetune(world, "campaigns", "--open").stdout.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["fourth", "third", "second"]
    done, = rows(world, "campaigns", "--run", "first")
    assert (done["ended"], done["done"] if "done" in done else "1", done["to_go"]) == ("1/1", "1", "")
    assert "kernels" in wavetune(world, "campaigns", "-o", "wide").stdout.splitlines()[0]
    assert wavetune(world, "campaigns", "--owner", "nobody").stdout.count("\n") == 1
    assert len(json.loads(wavetune(world, "campaigns", "--json").stdout)) == 4


def test_campaigns_show_how_many_jobs_were_cancelled(world):
    wavetune(world, "cancel", "--run", "third")
    wait_until(lambda: json.loads(wavetune(world, "campaigns", "--run", "third", "--json").stdout)[0]["cancelled"] == 1, 30, "the count")
    head, row = (line.split() for line in wavetune(world, "campaigns", "--run", "third").stdout.splitlines())
    assert dict(zip(head, row)).items() >= {"ended": "1/1", "running": "0", "failed": "0", "cancelled": "1"}.items(), (head, row)


def test_cost_is_summed_and_ends_with_the_total(world):
    cost = world.get("/v1/cost?by=run")
    text = wavetune(world, "cost", "--by", "run").stdout
    assert text.splitlines()[0].split() == ["run", "device", "h", "jobs", "measurements"]
    assert f"all: {cost['device_seconds'] / 3600:.2f} h of device time, 1 jobs" in text
    assert [row["name"] for row in rows(world, "cost", "--by", "run")] == [item["name"] for item in cost["items"]]
    assert json.loads(wavetune(world, "cost", "--json").stdout)["by"] == "week"
    assert rows(world, "cost", "--since", "7d") and not rows(world, "cost", "--since", "2999-01-01")
    for wrong, code in ((("--since", "yesterday"), 2), (("--by", "colour"), 4), (("-o", "yaml"), 2)):
        done = wavetune(world, "cost", *wrong, check=False)
        assert done.returncode == code and done.stderr.count("\n") == 1 and done.stdout == "", done


def test_top_without_a_terminal_prints_once(world):
    text = wavetune(world, "top").stdout
    assert text.startswith("2 nodes, 3 devices: 1 measuring, 2 idle\n") and "\x1b" not in text
    assert "to go: " in text and re.search(r"^nightly +second +0/1 +\[\.{24}\] +0 %", text, re.M) and "node10" in text
    assert wavetune(world, "top", "--once").stdout.splitlines()[0] == text.splitlines()[0]
    assert set(json.loads(wavetune(world, "top", "--json").stdout)) == {"fleet", "campaigns", "nodes"}


class Terminal:
    """A program on a pseudo-terminal of 100 columns and `rows` rows."""

    def __init__(self, *arguments, rows=30, **environment):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execve(arguments[0], [str(a) for a in arguments], os.environ | {"TERM": "xterm"} | environment)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 100, 0, 0))
        self.text = ""

    def read(self, seconds=0.2):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                return self.text
            if not chunk:
                return self.text
            self.text += chunk.decode(errors="replace")
        return self.text

    def until(self, words, from_=0):
        wait_until(lambda: words in self.read()[from_:], 30, f"{words!r} on the terminal, which shows {self.text[-2000:]!r}")

    def press(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Its exit code."""
        deadline = time.monotonic() + 30 * PATIENCE
        while time.monotonic() < deadline:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read(0.05)
                os.close(self.master)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError("the program does not end")


def top(server, **more):
    return Terminal(BUILD / "wavetune", "top", WAVETUNE_URL=server.url, WAVETUNE_TOKEN=server.token, **more)


@pytest.mark.parametrize("keys", [b"q", b"\x03"], ids=["q", "ctrl-C"])
def test_top_on_a_terminal_is_drawn_again_until_a_key_leaves_it(world, keys):
    shown = top(world)
    shown.until("3 devices: 1 measuring")
    seen = len(shown.text)
    shown.until("3 devices: 1 measuring", seen)
    shown.press(b"x")
    shown.press(keys)
    assert shown.end() == 0
    assert shown.text.startswith("\x1b[?1049h\x1b[?25l") and shown.text.endswith("\x1b[?25h\x1b[?1049l")


def test_top_fits_its_screen(world, hands):
    for i in range(30):
        hands(f"more-{i:02}")
    shown = top(world, rows=12)

    def frames():
        return [frame.split("\x1b[J")[0] for frame in shown.read().split("\x1b[H")[1:] if "\x1b[J" in frame]

    wait_until(lambda: any(frame.count("\n") == 11 and frame.endswith("…") for frame in frames()), 30, "a frame of 12 lines")
    shown.press(b"q")
    assert shown.end() == 0


def test_top_outlasts_a_server_that_is_away_and_ends_when_it_is_refused(world):
    mood = {"status": None}

    def answer(method, path):
        if mood["status"]:
            return mood["status"], {"detail": "because\x1b[31m I say so", "status": mood["status"]}
        real = world.request(method, path)
        return real.status, real.body

    with FakeServer(answer) as fake:
        shown = top(fake)
        shown.until("3 devices")
        mood["status"] = 503
        shown.until("trying again")
        mood["status"] = None
        seen = len(shown.read())
        wait_until(lambda: "trying again" not in shown.read()[seen:].split("\x1b[H")[-1] and "3 devices" in shown.text[seen:], 30, "it again")
        mood["status"] = 403
        assert shown.end() == 4
    assert "because?[31m I say so" in shown.text and "\x1b[31m" not in shown.text.split("\x1b[?1049l")[0]


def test_top_says_in_a_sentence_why_it_cannot_begin(world):
    done = subprocess.run([BUILD / "wavetune", "top", "--url", "http://127.0.0.1:9"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and done.stdout == ""


def test_the_demo_fleet_has_what_the_page_shows():
    with demo_fleet.Fleet(nodes=4, devices=2, jobs=100, live=20) as fleet:
        server = fleet.server
        summary = wait_until(lambda: (found := server.get("/v1/fleet"))["devices"]["lost"] == 2 and found["devices"]["measuring"] and found,
                             60, "the states")
        devices = summary["devices"]
        assert devices["total"] == 8 and devices["drifted"] == 1 and devices["drained"] >= 2, devices
        campaigns = {(c["tag"], c["run"]): c for c in server.items("/v1/campaigns")}
        assert sum(c["jobs"] for c in campaigns.values()) >= 100
        live = campaigns[demo_fleet.LIVE[:2]]
        assert live["owners"] == ["alice"] and live["queued"] + live["running"] + live["done"] == 20
        assert campaigns["chat", "attention-rewrite"]["cancelled"] and campaigns["default", "first"]["failed"] == 1
        assert {"bob", "alice", "ci-nightly"} <= {i["name"] for i in server.get("/v1/cost?by=owner")["items"]}
        assert len(server.get("/v1/cost?by=week")["items"]) >= 3
        done = server.get("/v1/jobs?state=done&limit=1")["items"][0]
        assert server.get(f"/v1/jobs/{done['job']}")["winner"]["verdict"]["verdict"] in ("FASTER", "SAME")
        assert len(server.items(f"/v1/jobs/{done['job']}/measurements")) > 40
        assert {c["channel"] for c in server.items("/v1/channels")} == {"stable", "canary", "nightly"}
        assert server.get("/v1/demand")["items"]
