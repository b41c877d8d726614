#!/usr/bin/env python3
"""How long a container waits until its compiled code is stored, when its token already has many files:

    WAVETUNE_BUILD=build/release bench/remote_put.py [FILES [PUTS [CLIENTS]]]

Default: 200,000 files, 300 writes each by one client, then by 8 at once. PostgreSQL, server and clients share the machine's cores."""

import concurrent.futures
import http.client
import sys
import time

import driver
import harness

FOLDER = "A" * 52
BODY = b'[["a.hsaco", 4096]]\n' + bytes(4096)


def write(server, token, client, n):
    """Milliseconds of each write."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    took = []
    for i in range(n):
        began = time.monotonic()
        connection.request("PUT", f"/v1/remote/triton/{FOLDER}/group/{client}-{time.monotonic_ns()}.json?image=i", BODY,
                           {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 204
        took.append((time.monotonic() - began) * 1e3)
    return took


def main():
    files, puts, clients = (int(text) for text in (*sys.argv[1:], *("200000", "300", "8")[len(sys.argv) - 1:]))
    with driver.Bench() as bench:
        server = bench.server(options=("--remote-mib", "65536"))
        token = harness.make_token(server.database, "container", "reader,demand")
        bench.postgres.sql(f"""INSERT INTO remote_files (token_id, image, folder, name, is_group, bytes)
                               SELECT (SELECT id FROM tokens WHERE name = 'container'), '', '{FOLDER}', i::text, true, '\\x00'
                               FROM generate_series(1, {files}) i;
                               ANALYZE remote_files""", conninfo=server.database)
        bench.print_machine()
        for n in (1, clients):
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(n) as pool:
                took = sorted(ms for each in pool.map(lambda client: write(server, token, client, puts // n), range(n))
                              for ms in each)
            print(f"  {n} at once: p50 {driver.percentile(took, 0.5):.1f}, p99 {driver.percentile(took, 0.99):.1f} ms; "
                  f"{len(took) / (time.monotonic() - began):,.0f} writes a second", flush=True)


main()
