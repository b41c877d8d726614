#!/usr/bin/env python3
"""1,000 programs that start at once and take their compiled code from one server, against the same bytes from nginx and from
redis-server. What a program requests is recorded from a real one (Triton 3.3.1, bench/many_kernels.py) in an empty folder:

    signed    one connection: GET /v1/choices, and a group of files for each kernel, which a signed release names
    shared    the same groups from the namespace of a token and an image, which the server reads from its database; no choices
    nginx     the requests of `signed`, with the same answers
    redis     Triton's RemoteCacheManager: a connection, its handshake and two MGET for each kernel

    WAVETUNE_BUILD=build/release bench/program_start.py [cold] [RUNS [STARTS [KERNELS [AT_ONCE]]]]

Default: 5 runs of 1,000 starts of 50 kernels, first 100 at a time, then all at once. `cold`: each run of `signed` and `shared` on a
server that has just started, without nginx and Redis, and how many statements it ran. Needs build/triton-3.3.1 (tests/python-env.sh 3.3.1) with redis (its pip install
redis) and the packages nginx-light, redis-server, lld-19. PostgreSQL, server and load share the machine's cores.
"""

import hashlib
import json
import statistics
import sys
from pathlib import Path

import driver
import harness
import many_kernels
from cached_get import nginx_start

TRITON = "3.3.1"
HARDWARE = {"rocm": "6.4.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
ENVIRONMENT = {**HARDWARE, "triton": TRITON}
SHARE = ("--remote-share", f"container/{many_kernels.IMAGE}")
SPACE = {"configs": [{"BLOCK": 1024, "num_warps": 4}]}


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Program:
    """The program of `n` kernels, and what Triton compiled for it: `groups` is [(folder's name, {file: bytes})]."""

    def __init__(self, bench, n):
        self.bench, self.n, self.runs = bench, n, 0
        self.folder = bench.folder / "program"
        self.folder.mkdir()
        many_kernels.write(self.folder, n)
        cache = self.run({}, compiled=n)
        groups = [path for path in cache.glob("*/__grp__*.json")]
        assert len(groups) == n
        self.groups = [(path.parent.name, {file.name: file.read_bytes() for file in path.parent.iterdir() if file != path})
                       for path in sorted(groups)]

    def run(self, variables, compiled=0):
        """Runs it in an empty folder, which it returns."""
        self.runs += 1
        cache = self.bench.folder / f"cache{self.runs}"
        report = many_kernels.finish(many_kernels.start(TRITON, self.folder, self.n, cache, variables))
        assert report["compiled"] == compiled, report
        return cache

    def record(self, port, variables):
        """The requests of a start whose code comes from this port, however slowly."""
        with driver.Recorder(port) as recorder:
            self.run({**variables(recorder.port), **many_kernels.PATIENT})
        return recorder.requests


def push(server, bench, folder, files):
    """A kernel with a build of one config, whose code is in a folder of Triton's cache; returns its hash."""
    name = next(file[:-len(".hsaco")] for file in files if file.endswith(".hsaco"))
    place, code = bench.folder / name, bench.folder / f"{name}.build"
    place.mkdir()
    (code / "objects").mkdir(parents=True)
    (place / "k.py").write_text(f"# {name}\n")
    (place / "space.json").write_text(json.dumps(SPACE))
    (place / "kernel.json").write_text(json.dumps({
        "name": name, "key": ["n"], "arguments": [{"name": "y", "dtype": "float16", "shape": ["n"], "access": "write"}],
        "versions": {"triton": {"language": "triton", "entry": name, "sources": ["k.py"], "launch": {"grid": ["n"]}}}}))
    for data in files.values():
        (code / "objects" / hashlib.sha256(data).hexdigest()).write_bytes(data)
    digests = {file: sha(data) for file, data in files.items()}
    record = {"name": name, "function": {"name": name, "closure": sha(name.encode())}, "key_names": ["n"], "tuning_key": ["n"],
              "argument_dtypes": ["torch.float16"]}
    made = {"config": SPACE["configs"][0], "digest": digests[f"{name}.hsaco"],
            "metadata": {"name": name, "cache": {"folder": folder, "files": digests}}}
    build = {"kernel": harness.wavetune(None, "kernel", "hash", place).stdout.strip(), "toolchain": {"triton": TRITON},
             "arch": "gfx942", "warp_size": 64, "record": record,
             "variants": [{"signature": {"y": "*fp16"}, "constexprs": {}, "objects": [made]}]}
    (code / "build.json").write_bytes(json.dumps(build, sort_keys=True, separators=(",", ":")).encode())
    harness.wavetune(server, "kernel", "push", place, "--build", code)
    return build["kernel"]


def publish(server, bench, kernels):
    """A signed release with a winner for each kernel."""
    jobs = [{"kernel": kernel, "key": {"n": 4096}, "space": SPACE, "environment": HARDWARE} for kernel in kernels]
    for job in server.request("POST", "/v1/jobs", {"jobs": jobs}).json["jobs"]:
        bench.postgres.sql(f"""UPDATE jobs SET state = 'done', finished_at = now() WHERE id = {job['job']};
                               INSERT INTO winners (job_id, config, config_values, verdict) VALUES
                                 ({job['job']}, 0, '{json.dumps(SPACE["configs"][0])}',
                                  '{{"winner": 0, "verdict": "FASTER", "equivalence_set": [0]}}')""", conninfo=server.database)
    harness.wavetune(None, "key", "new", bench.folder / "publisher")
    harness.wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--channel", "stable", "--sign-key",
                     bench.folder / "publisher")


def signed_side(bench, program):
    server = bench.server()
    publish(server, bench, [push(server, bench, *group) for group in program.groups])
    token = harness.make_token(server.database, "container", "reader,demand")
    requests = program.record(server.port, lambda port: {
        **many_kernels.remote(port, token), "WAVETUNE_ENVIRONMENT": json.dumps(ENVIRONMENT), "WAVETUNE_SHARED_CODE": "",
        "WAVETUNE_TRUSTED_KEYS": str(bench.folder / "publisher.pub")})
    assert len(requests) == program.n + 1, requests
    return server, token, requests


def shared_side(bench, program):
    server = bench.server(options=SHARE)
    token = harness.make_token(server.database, "container", "reader,demand")
    program.run({**many_kernels.remote(server.port, token), **many_kernels.PATIENT}, compiled=program.n)
    # Not recorded: a program also writes the list of its start, on another connection.
    names = [next(name for name in files if name.endswith(".hsaco")).removesuffix(".hsaco") for _, files in program.groups]
    requests = [driver.get_request(f"/v1/remote/triton/{folder}/group/{name}.json?image={many_kernels.IMAGE}", token)
                for (folder, _), name in zip(program.groups, names)]
    return server, requests


def nginx_side(bench, server, token, requests):
    """The same answers to the same requests."""
    web, port = nginx_start(bench, b"")
    size = 0
    for request in requests:
        path = request.split(b" ")[1].decode()
        body = server.request("GET", path, token=token).body
        file = Path(f"{bench.folder}/www{path.split('?')[0]}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        size += len(body)
    return web, port, size


def redis_side(bench, program):
    redis, redis_port = driver.redis_start(bench)

    def variables(port):
        return {**many_kernels.REDIS, "TRITON_REDIS_PORT": str(port)}

    program.run(variables(redis_port), compiled=program.n)
    return redis, redis_port, program.record(redis_port, variables)


def cold_starts(bench, sides, n, runs, at_once):
    """`sides`: {name: (database, options, requests)}."""
    for name, (database, options, requests) in sides.items():
        seen = {"p50": [], "p99": [], "last": [], "statements": []}
        for _ in range(runs):
            server = bench.server(database, options)
            before = statements(server)
            answer = driver.starts(server.port, requests, n, at_once)
            assert answer["failed"] == 0, f"{answer['failed']} of {n} starts failed"
            ms = answer["ms"]
            seen["statements"].append(statements(server) - before)
            for label, share in (("p50", 0.5), ("p99", 0.99), ("last", 1)):
                seen[label].append(driver.percentile(ms, share))
            server.stop()
        print(f"  {name:9} " + "; ".join(f"{label} {driver.spread(values)}" for label, values in seen.items()), flush=True)


def statements(server):
    """How many it ran; a few a second are its housekeeping."""
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("wavetune_db_runs_total{"))


def main():
    arguments = sys.argv[1:]
    is_cold = arguments[:1] == ["cold"]
    arguments = arguments[is_cold:]
    runs, n, kernels, *waves = (int(text) for text in (*arguments, *("5", "1000", "50")[len(arguments):]))
    many_kernels.python(TRITON, *() if is_cold else ("redis",))
    with driver.Bench() as bench:
        program = Program(bench, kernels)
        signed, token, requests = signed_side(bench, program)
        shared, shared_requests = shared_side(bench, program)
        if is_cold:
            bench.print_machine()
            for at_once in waves or (n,):
                print(f"{n:,} starts at a server that has just started, {min(at_once, n):,} at a time; ms, {runs} runs", flush=True)
                cold_starts(bench, {"signed": (signed.database, (), requests),
                                    "shared": (shared.database, SHARE, shared_requests)}, n, runs, at_once)
            return
        driver.need("nginx", "nginx-light")
        web, port, size = nginx_side(bench, signed, token, requests)
        redis, redis_port, commands = redis_side(bench, program)
        sides = {"nginx": (web.pid, port, requests), "signed": (signed.process.pid, signed.port, requests),
                 "shared": (shared.process.pid, shared.port, shared_requests), "redis": (redis.pid, redis_port, commands, "redis")}
        bench.print_machine()
        for at_once in waves or (100, n):
            print(f"{n:,} starts, {min(at_once, n):,} at a time; {len(requests)} requests and {size:,} bytes each, of redis "
                  f"{commands.count(None) + 1} connections and {len(commands) - commands.count(None)} requests; {runs} runs in turn",
                  flush=True)
            seen = driver.compare_starts(sides, n, runs, at_once)
            for name in ("signed", "shared"):
                print("ratio: " + name + ": " + "; ".join(
                    f"{label} {statistics.median(seen[name][label]) / statistics.median(seen[other][label]):.2f} x {other}'s"
                    for other in ("nginx", "redis") for label in ("p50", "p99")), flush=True)
        bench.print_machine()


main()
