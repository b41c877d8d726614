#!/usr/bin/env python3
"""Prints the Grafana dashboard of a fleet, to import as JSON or to provision as a file.

    deploy/grafana/dashboard.py >wavetune.json
    deploy/grafana/dashboard.py --queries        each query on a line, without the dashboard's variables

Counters are summed over servers; what every server states of the whole database is the same at all of them: max. The queries
are asked of a Prometheus that reads a real server in tests/system/test_dashboard.py."""

import json
import sys

SERVERS = 'job=~"$job"'
RATE = "$__rate_interval"

# Row -> panels: (title, unit, {legend: query}, description).
ROWS = {
    "Starts of containers": [
        ("Answers from memory and in all", "reqps", {
            "from memory": f"sum(rate(wavetune_http_responses_from_memory_total{{{SERVERS}}}[{RATE}]))",
            "all": f"sum(rate(wavetune_http_requests_total{{{SERVERS}}}[{RATE}]))"}, ""),
        ("Time of an answer, 99 of 100", "s", {
            "{{route}}": f"histogram_quantile(0.99, sum by (route, le) (rate(wavetune_http_work_seconds_bucket{{{SERVERS}}}[{RATE}])))"},
         "Without the time in a long poll."),
        ("Refused and failed", "reqps", {
            "{{status}}": f'sum by (status) (rate(wavetune_http_answers_total{{{SERVERS}, status=~"4..|5.."}}[{RATE}]))',
            "queue full": f"sum(rate(wavetune_queue_shed_total{{{SERVERS}}}[{RATE}]))",
            "queue late": f"sum(rate(wavetune_queue_late_total{{{SERVERS}}}[{RATE}]))",
            "token: {{reason}}": f"sum by (reason) (rate(wavetune_tokens_refused_total{{{SERVERS}}}[{RATE}]))"}, ""),
    ],
    "Work": [
        ("Open jobs", "short", {"{{state}}": f"sum by (state) (max by (state, tag) (wavetune_jobs{{{SERVERS}}}))"}, ""),
        ("Oldest queued job", "s", {"{{tag}}": f"max by (tag) (wavetune_jobs_oldest_seconds{{{SERVERS}}})"}, ""),
        ("Jobs", "short", {
            "done": f"sum(increase(wavetune_jobs_done_total{{{SERVERS}}}[$__range]))",
            "failed": f"sum(increase(wavetune_jobs_failed_total{{{SERVERS}}}[$__range]))"}, "In the time shown."),
        ("Leases", "short", {"{{state}}": f"max by (state) (wavetune_leases{{{SERVERS}}})"}, ""),
        ("What became of leases", "ops", {
            name: f"sum(rate(wavetune_leases_{name}_total{{{SERVERS}}}[{RATE}]))"
            for name in ("granted", "done", "lost", "reopened")}, "Lost: the agent stopped renewing."),
        ("Measurements", "ops", {
            name: f"sum(rate(wavetune_measurements_{name}_total{{{SERVERS}}}[{RATE}]))"
            for name in ("accepted", "late", "quarantined")}, ""),
    ],
    "Devices": [
        ("Agents", "short", {"live": f"max(wavetune_agents{{{SERVERS}}})"}, ""),
        ("Devices", "short", {"{{state}}": f"max by (state) (wavetune_devices{{{SERVERS}}})"}, "Of agents seen within 7 days."),
        ("Device time used", "percentunit", {"used": f"max(wavetune_devices_utilisation{{{SERVERS}}})"}, "Of live devices."),
        ("Device time by kernel", "s", {
            "{{kernel}}": f"topk(10, max by (kernel) (wavetune_device_seconds_total{{{SERVERS}}}))"},
         "The ten that used the most, of those used last."),
        ("Drift and poison", "short", {
            "devices drained": f"sum(increase(wavetune_devices_drained_total{{{SERVERS}}}[$__range]))",
            "winners quarantined": f"sum(increase(wavetune_winners_quarantined_total{{{SERVERS}}}[$__range]))",
            "poisoned": f"sum(increase(wavetune_poisoned_total{{{SERVERS}}}[$__range]))"}, "In the time shown."),
    ],
    "Servers and database": [
        ("Ready", "bool_yes_no", {"{{instance}}": f"wavetune_ready{{{SERVERS}}}"}, ""),
        ("Connections", "short", {"{{class}}": f"sum by (class) (wavetune_http_connections{{{SERVERS}}})"}, ""),
        ("Requests that wait", "short", {
            "for a database worker": f"sum(wavetune_queue_length{{{SERVERS}}})",
            "in a long poll": f"sum(wavetune_parked{{{SERVERS}}})"}, ""),
        ("Database time by statement", "s", {
            "{{statement}}": f"topk(10, sum by (statement) (rate(wavetune_db_seconds_total{{{SERVERS}}}[{RATE}])))"},
         "Seconds a second."),
        ("Rows that vacuum has not removed", "short", {"{{table}}": f"topk(10, max by (table) (wavetune_database_dead_rows{{{SERVERS}}}))"}, ""),
        ("Forgotten transaction", "s", {"idle": f"max(wavetune_database_idle_transaction_seconds{{{SERVERS}}})"}, ""),
    ],
}
WIDTH, HEIGHT, PER_LINE = 8, 8, 3


def dashboard():
    source = {"type": "prometheus", "uid": "${source}"}
    panels, y = [], 0
    for row, specs in ROWS.items():
        panels.append({"type": "row", "title": row, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        y += 1
        for i, (title, unit, queries, description) in enumerate(specs):
            panels.append({
                "type": "timeseries", "title": title, "description": description, "datasource": source,
                "gridPos": {"x": i % PER_LINE * WIDTH, "y": y + i // PER_LINE * HEIGHT, "w": WIDTH, "h": HEIGHT},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 5, "showPoints": "never"}},
                                "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
                "targets": [{"refId": chr(ord("A") + n), "expr": query, "legendFormat": legend, "datasource": source}
                            for n, (legend, query) in enumerate(queries.items())]})
        y += (len(specs) + PER_LINE - 1) // PER_LINE * HEIGHT
    for i, panel in enumerate(panels):
        panel["id"] = i + 1
    variables = [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {"name": "job", "type": "query", "datasource": source, "query": "label_values(wavetune_ready, job)", "refresh": 1,
         "multi": True, "includeAll": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"}}]
    return {"uid": "wavetune", "title": "wavetune", "tags": ["wavetune"], "schemaVersion": 39, "editable": True, "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"}, "timezone": "browser", "annotations": {"list": []},
            "templating": {"list": variables}, "panels": panels}


def main():
    if sys.argv[1:] == ["--queries"]:
        for specs in ROWS.values():
            for _, _, queries, _ in specs:
                for query in queries.values():
                    print(query.replace("$job", ".+").replace("$__rate_interval", "1m").replace("$__range", "6h"))
    elif sys.argv[1:]:
        sys.exit("usage: dashboard.py [--queries]")
    else:
        print(json.dumps(dashboard(), indent=1))


if __name__ == "__main__":
    main()
