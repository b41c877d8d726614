#!/usr/bin/env python3
"""A release from the server's cache compared with nginx serving the same bytes: 64 keep-alive connections, one run, both
sides in turn, answered in full (200) and as unchanged (304). wavetune checks the token of every request; nginx has none to
check.

    bench/cached_get.py [ROUNDS [SECONDS]]        default 5 rounds of 3 s

Needs nginx and wrk (packages nginx-light, wrk). wrk shares the cores with the servers, so the CPU time that the server itself
spent on a request is printed beside the rate.
"""

import re
import socket
import statistics
import subprocess
import sys
import time

import driver
import harness

WINNERS = 80


def wrk(url, seconds, status, *headers):
    """Requests/s, their number and the 99th percentile of the latency."""
    arguments = [a for h in headers for a in ("-H", h)]
    out = subprocess.run([driver.need("wrk", "wrk"), "-t1", "-c64", f"-d{seconds}s", "--latency", *arguments, url],
                         capture_output=True, text=True, check=True).stdout
    errors = re.search(r"Non-2xx or 3xx.*|Socket errors.*", out)
    assert not errors, out
    requests = int(re.search(r"(\d+) requests in", out)[1])
    return float(re.search(r"Requests/sec:\s+([0-9.]+)", out)[1]), requests, re.search(r"99%\s+(\S+)", out)[1]


def status_and_size(port, target, *headers):
    """One request without wrk, whose errors do not show whether the answer is the expected one."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        lines = [f"GET {target} HTTP/1.1", "Host: bench", "Connection: close", *headers]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, body = answer.split(b"\r\n\r\n", 1)
    return int(head.split()[1]), len(body), dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])


def nginx_start(bench, body, pair=None):
    """(process, port) of nginx that serves /release.json; with a certificate (certificates.Pair), (process, port, port of TLS)."""
    folder = bench.folder
    (folder / "www").mkdir()
    (folder / "www/release.json").write_bytes(body)
    folder.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        port, tls_port = free.getsockname()[1], other.getsockname()[1]
    # As wavetune-server: no sessions are resumed.
    tls = pair and (f"listen 127.0.0.1:{tls_port} ssl backlog=4096; ssl_certificate {pair.certificate}; ssl_certificate_key {pair.key};"
                    " ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache off; ssl_session_tickets off;")
    configuration = folder / "nginx.conf"
    configuration.write_text(f"""
daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=100;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d;
  scgi_temp_path {folder}/e; types {{ application/json json; }}
  server {{ listen 127.0.0.1:{port} backlog=4096; {tls or ""} root {folder}/www; }} }}
""")
    process = subprocess.Popen([driver.need("nginx", "nginx-light"), "-c", str(configuration)], stderr=subprocess.DEVNULL)
    bench.programs.callback(process.wait, 20)
    bench.programs.callback(process.terminate)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return (process, port, tls_port) if pair else (process, port)
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("nginx did not start")


def release_of(server, winners):
    """The digest of a release of pinned configs; a load completed their jobs with made-up times."""
    agents = driver.enrol(server)
    kernel = driver.register(server, "noop")
    keys = [{"n": i + 1} for i in range(winners)]
    driver.submit(server, kernel, keys, driver.space_of(8))
    driver.run_load("lease_load", server, agents, 16, 3)
    pins = [{"kernel": kernel, "key": key, "config": {"P": 0}} for key in keys]
    answer = server.request("POST", "/v1/releases", {"environment": driver.ENVIRONMENT, "pins": pins})
    assert answer.status in (200, 201), answer
    return answer.json["release"]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    driver.need("wrk", "wrk")
    driver.need("nginx", "nginx-light")
    with driver.Bench() as bench:
        server = bench.server()
        path = f"/v1/releases/{release_of(server, WINNERS)}"
        body = server.request("GET", path).body
        web, web_port = nginx_start(bench, body)
        web_pids = [web.pid, *driver.children(web.pid)]
        token = f"Authorization: Bearer {server.token}"
        sides = {}
        for name, port, target, pids, headers in (
                ("nginx", web_port, "/release.json", web_pids, ()),
                ("wavetune", server.port, path, [server.process.pid], (token,))):
            status, size, received = status_and_size(port, target, *headers)
            assert (status, size) == (200, len(body)), (name, status, size)
            unchanged = (*headers, f"If-None-Match: {received['ETag']}")
            assert status_and_size(port, target, *unchanged)[:2] == (304, 0), name
            sides[f"{name} 200"] = (f"http://127.0.0.1:{port}{target}", pids, 200, headers)
            sides[f"{name} 304"] = (f"http://127.0.0.1:{port}{target}", pids, 304, unchanged)
        bench.print_machine()
        print(f"{len(body):,} bytes, 64 keep-alive connections, {rounds} rounds of {seconds} s, in turn, one wrk thread; "
              "2 nginx workers, 2 event threads of wavetune", flush=True)
        rates, costs = {name: [] for name in sides}, {name: [] for name in sides}
        for i in range(rounds):
            for name in sorted(sides, key=lambda name: (name[-3:], name), reverse=i % 2):
                url, pids, status, headers = sides[name]
                before = sum(map(driver.cpu_seconds, pids))
                rate, requests, p99 = wrk(url, seconds, status, *headers)
                rates[name].append(rate)
                costs[name].append((sum(map(driver.cpu_seconds, pids)) - before) * 1e6 / requests)
                print(f"  {name:13} {rate:10,.0f} requests/s  p99 {p99}", flush=True)
        for name in sides:
            print(f"{name:13} {driver.spread(rates[name])} requests/s; {driver.spread(costs[name], 2)} us of CPU a request")
        for status in ("200", "304"):
            ratio = statistics.median(rates[f"wavetune {status}"]) / statistics.median(rates[f"nginx {status}"])
            cost = statistics.median(costs[f"wavetune {status}"]) / statistics.median(costs[f"nginx {status}"])
            print(f"ratio: cached GET, {status}: {ratio:.2f} x nginx's requests/s (goal 1), {cost:.2f} x its CPU a request")


if __name__ == "__main__":
    main()
