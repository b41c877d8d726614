#!/usr/bin/env python3
"""A release from the server's memory against nginx serving the same bytes: 64 keep-alive connections, one run, both sides
in turn. Needs nginx and wrk (packages nginx-light, wrk). Prints requests/s of each and the ratio of medians.

    bench/cached_get.py [ROUNDS [SECONDS]]        default 5 rounds of 3 s
"""

import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import time

import driver
import harness


def wrk(url, seconds, *headers):
    arguments = [a for h in headers for a in ("-H", h)]
    out = subprocess.run(["wrk", "-t1", "-c64", f"-d{seconds}s", "--latency", *arguments, url], capture_output=True, text=True,
                         check=True).stdout
    errors = re.search(r"Non-2xx.*|Socket errors.*", out)
    assert not errors, out
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", out)[1]), re.search(r"99%\s+(\S+)", out)[1]


def nginx(folder, body):
    (folder / "www").mkdir()
    (folder / "www/release.json").write_bytes(body)
    folder.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = folder / "nginx.conf"
    configuration.write_text(f"""
daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=100;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d;
  scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; root {folder}/www; }} }}
""")
    process = subprocess.Popen(["nginx", "-c", str(configuration)], stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, f"http://127.0.0.1:{port}/release.json"
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise SystemExit("nginx did not start")


def release_of(server, winners):
    """A release of about `winners` entries, by pins: nothing needs to be measured for it."""
    driver.enrol(server)
    key = "rows=1,columns=1"
    job = driver.submit(server, f"{harness.KERNELS}/softmax:fused", [key])[0]
    summary = server.get(f"/v1/jobs/{job['job']}")
    config = next(iter([summary["space"]["default"]]))
    pins = [{"kernel": summary["kernel"], "key": {"rows": i + 1, "columns": 64}, "config": config} for i in range(winners)]
    answer = server.request("POST", "/v1/releases", {"environment": driver.ENVIRONMENT, "pins": pins})
    assert answer.status in (200, 201), answer
    return answer.json["release"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    folder = driver.scratch()
    postgres = harness.Postgres()
    server = web = None
    try:
        server = harness.Server(postgres.database(), folder)
        digest = release_of(server, 80)
        path = f"/v1/releases/{digest}"
        body = server.request("GET", path).body
        web, web_url = nginx(folder, body)
        token = f"Authorization: Bearer {server.token}"
        etag = server.request("GET", path).headers["ETag"]
        figures = {"nginx": [], "wavetune": [], "wavetune 304": []}
        print(f"{len(body):,} bytes, 64 keep-alive connections, {rounds} rounds of {seconds} s, in turn, one wrk thread")
        for _ in range(rounds):
            for name, arguments in (("nginx", (web_url, seconds)), ("wavetune", (server.url + path, seconds, token)),
                                    ("wavetune 304", (server.url + path, seconds, token, f"If-None-Match: {etag}"))):
                rate, p99 = wrk(*arguments)
                figures[name].append(rate)
                print(f"  {name:13} {rate:10,.0f} requests/s  p99 {p99}")
        for name, rates in figures.items():
            print(f"{name:13} {driver.spread(rates)} requests/s")
        ratio = statistics.median(figures["wavetune"]) / statistics.median(figures["nginx"])
        print(f"ratio: cached GET {ratio:.2f} x nginx (medians; token checked on every request)")
    finally:
        for process in filter(None, (web, server.process if server else None)):
            process.terminate()
            process.wait(20)
        postgres.stop()


main()
