"""The alert rules of deploy/prometheus: on made-up series (tests/data/alerts*.yml), against what a server really serves, and in a
Prometheus that reads a server."""

import json
import re
import shutil
import socket
import subprocess
import urllib.request

import harness
import pytest
from harness import make_token, wait_until

FOLDER = harness.SOURCE / "deploy/prometheus"
RULES = (FOLDER / "wavetune.rules.yml").read_text()
ALERTS = re.findall(r"- alert: (\w+)", RULES)
CASES = [harness.DATA / "alerts.yml", harness.DATA / "alerts_of_days.yml"]

needs_prometheus = pytest.mark.skipif(not shutil.which("promtool"), reason="Prometheus is not installed (Debian: prometheus)")


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@needs_prometheus
def test_each_alert_fires_when_it_must_and_not_before():
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "--lint=all", "--lint-fatal", FOLDER / "wavetune.rules.yml")
    assert "SUCCESS" in promtool("test", "rules", *CASES)
    named = set(re.findall(r'alertname="(\w+)"', " ".join(path.read_text() for path in CASES)))
    assert len(ALERTS) > 15 and set(ALERTS) == named, "each alert has a case"


def test_the_rules_name_metrics_routes_and_labels_that_a_server_has(server):
    def exposition():
        text = server.request("GET", "/metrics").body.decode()
        return "\nwavetune_leases{" in text and text

    text = wait_until(exposition, 60, "the leases to be counted")
    expressions = " ".join(re.findall(r"expr: (?:>-\n((?: {10}.*\n)+)|.*)", RULES)) + " ".join(re.findall(r"expr: (.*)", RULES))
    named = {re.sub("_bucket$", "", name) for name in re.findall(r"\bwavetune_\w+", expressions)}
    served = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert len(named) > 15 and named <= served, named - served

    routes = set(re.findall(r"^  ROUTE\((\w+),", (harness.SOURCE / "server/http/route.h").read_text(), re.M))
    for pattern in re.findall(r'route=~"([^"]*)"', expressions):
        for part in re.split(r"\|(?![^(]*\))", pattern):
            assert any(re.fullmatch(part, route) for route in routes), part
    for label, pattern in re.findall(r'(reason|state|limit)=~?"([^"]*)"', expressions):
        for value in pattern.split("|"):
            assert f'{label}="{value}"' in text, (label, value)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@needs_prometheus
def test_a_prometheus_that_reads_a_server_notices_that_its_database_is_away(start, tmp_path):
    cluster = harness.Postgres(durable=False)
    try:
        server = start(harness.Server, cluster.database(), options=harness.UNHURRIED)
        (tmp_path / "token").write_text(make_token(server.database, "prometheus", "reader"))
        shutil.copy(FOLDER / "wavetune.rules.yml", tmp_path)
        config = (FOLDER / "prometheus.yml").read_text()
        for was, now in (("127.0.0.1:7200", f"127.0.0.1:{server.port}"), ("_interval: 15s", "_interval: 1s"),
                         ("/etc/prometheus/wavetune.token", str(tmp_path / "token"))):
            assert was in config
            config = config.replace(was, now)
        (tmp_path / "prometheus.yml").write_text(config)
        promtool("check", "config", tmp_path / "prometheus.yml")

        port = free_port()
        prometheus = start(harness.Program, ["prometheus", f"--config.file={tmp_path}/prometheus.yml",
                                             f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"])

        def ask(path):
            assert prometheus.process.poll() is None, prometheus.messages[-3000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=600) as answer:
                    return json.load(answer)["data"]
            except OSError:
                return None  # it does not listen yet

        def value(expression):
            found = ask(f"query?query={urllib.request.quote(expression)}")
            return found and found["result"] and float(found["result"][0]["value"][1])

        def active():
            found = ask("alerts")
            return {alert["labels"]["alertname"] for alert in found["alerts"]} if found else set()

        wait_until(lambda: value("wavetune_ready") == 1, 60, "a scrape")
        wait_until(lambda: value("max(wavetune_leases) + 1") == 1, 60, "the leases")
        wait_until(lambda: not active(), 60, "no alert")
        cluster.kill()
        wait_until(lambda: active() == {"WavetuneAway", "WavetuneServerNotReady"}, 60, "the alerts")
        cluster.start()
        wait_until(lambda: not active(), 60, "their end")
    finally:
        cluster.stop()
