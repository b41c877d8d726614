"""The Grafana dashboard: a Prometheus that reads a real server with a token answers each of its queries. And where Alertmanager
sends the alerts."""

import json
import re
import shutil
import subprocess
import urllib.request

import harness
import pytest
from harness import make_token, wait_until, wavetune
from test_alerts import ALERTS, FOLDER, RULES, free_port, needs_prometheus

DASHBOARD = harness.SOURCE / "deploy/grafana/dashboard.py"
needs_amtool = pytest.mark.skipif(not shutil.which("amtool"), reason="Alertmanager is not installed (Debian: prometheus-alertmanager)")


def printed(*arguments):
    return subprocess.run([DASHBOARD, *arguments], capture_output=True, text=True, check=True).stdout


class Prometheus:
    def __init__(self, start, server, folder):
        (folder / "token").write_text(make_token(server.database, "prometheus", "reader"))
        shutil.copy(FOLDER / "wavetune.rules.yml", folder)
        config = (FOLDER / "prometheus.yml").read_text()
        for was, now in (("127.0.0.1:7200", f"127.0.0.1:{server.port}"), ("_interval: 15s", "_interval: 1s"),
                         ("/etc/prometheus/wavetune.token", str(folder / "token"))):
            config = config.replace(was, now)
        (folder / "prometheus.yml").write_text(config)
        self.port = free_port()
        start(harness.Program, ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                f"--web.listen-address=127.0.0.1:{self.port}"])

    def ask(self, query):
        """What it answers, a list; a refused query is its error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?query={urllib.request.quote(query)}",
                                        timeout=600) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.request.HTTPError as refused:
            pytest.fail(f"{query}: {refused.read().decode()}")
        except OSError:
            return []  # it does not listen yet


@needs_prometheus
def test_a_prometheus_that_reads_a_server_answers_each_query_of_the_dashboard(start, server, tmp_path):
    prometheus = Prometheus(start, server, tmp_path)
    folder = harness.small_kernel(tmp_path / "kernel")
    wavetune(server, "kernel", "push", folder)
    agent = start(harness.Agent, server)
    wait_until(lambda: server.get("/v1/agents")["items"], 60, "the agent")
    wavetune(server, "submit", folder, "--key", "n=1003", "--wait", "--timeout", "300")
    agent.process.terminate()
    agent.process.wait(60)
    assert server.request("GET", "/v1/jobs", token="wrong").status == 401
    wavetune(server, "submit", folder, "--key", "n=2003", "--run", "no agent takes it")

    queries = printed("--queries").splitlines()
    assert len(queries) > 30 and not any("$" in query for query in queries)
    missing = set(queries)

    def all_answered():
        missing.difference_update([query for query in missing if prometheus.ask(query)])
        return not missing
    try:
        wait_until(all_answered, 90, "answers")
    except AssertionError:
        pytest.fail("no answer to\n" + "\n".join(sorted(missing)))
    assert prometheus.ask('sum(wavetune_gone{job=~".+"})') == [], "an unknown metric would be noticed"


def test_the_dashboard_has_each_query_once_and_panels_that_do_not_overlap():
    dashboard = json.loads(printed())
    panels = dashboard["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(queries) == len(set(queries)) == len(printed("--queries").splitlines())
    cells = [(x, y) for panel in panels for place in (panel["gridPos"],)
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used - {"__rate_interval", "__range"} == variables


@needs_amtool
def test_alertmanager_sends_each_alert_to_the_receiver_of_its_severity():
    config = FOLDER / "alertmanager.yml"
    checked = subprocess.run(["amtool", "check-config", config], capture_output=True, text=True)
    assert checked.returncode == 0 and "2 receivers" in checked.stdout, checked
    severities = re.findall(r"- alert: (\w+)(?:(?!- alert)[\s\S])*?severity: (\w+)", RULES)
    assert [alert for alert, _ in severities] == ALERTS and {severity for _, severity in severities} == {"page", "ticket"}
    for alert, severity in severities:
        sent = subprocess.run(["amtool", "config", "routes", "test", f"--config.file={config}", f"alertname={alert}",
                               f"severity={severity}"], capture_output=True, text=True)
        assert sent.stdout.strip() == {"page": "pager", "ticket": "tickets"}[severity], (alert, sent)
