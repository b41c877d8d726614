#!/usr/bin/env python3
"""What a container's start costs, in one run on one machine.

  1. `wavetune fetch` of 50,000 entries, signed, as json and as dejavu: download, verify, read, render, write (what is left of
     it when all is rendered, the sync of the disk among it: a thread writes meanwhile), and the process from its start to its
     end; the same unchanged (one 304).
  2. the triton format: us for each file, beside folders and empty files of the same names, and what syncing each file would
     cost instead of the file system once.
  3. 1,000 containers that start at once against one server, against nginx with the same bytes: a load program opens 1,000
     connections in one moment, each asks for the channel entry and the release (bench/start_load.c). Without TLS, and with it:
     both have the same certificate (ECDSA P-256), and no session is resumed.

    WAVETUNE_BUILD=build/release bench/container_start.py [--starts] [RUNS]      default 9; --starts: only part 3

A virtual machine that gets its memory as it touches it pays more for each new page than for the work on it, also for every
file that is written. The line on pages prints that cost.

Needs nginx (package nginx-light). PostgreSQL, server and load share the machine's cores.
"""

import base64
import ctypes
import hashlib
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import time
import urllib.parse

import driver  # finds the modules of tests/system
import certificates
import harness
from cached_get import nginx_start

ENTRIES, TABLES, CONFIGS, TRITON_FILES, CONTAINERS = 50_000, 50, 64, 2_000, 1_000
SYNCED_FILES = 200  # each waits for the disk
ENVIRONMENT = {"rocm": "6.4.1", "torch": "2.9.0", "triton": "3.3.1", "gpu": "AMD Instinct MI300X", "arch": "gfx942",
               "compute_units": 304, "partition": "SPX/NPS1"}
PAGES_BYTES = 256 << 20
LIBC = ctypes.CDLL(None)


def page_touch_us():
    """us for the first touch of each page of memory."""
    with mmap.mmap(-1, PAGES_BYTES) as memory:
        address = ctypes.addressof(anchor := ctypes.c_char.from_buffer(memory))
        began = time.perf_counter()
        LIBC.memset(ctypes.c_void_p(address), 1, ctypes.c_size_t(PAGES_BYTES))
        took = time.perf_counter() - began
        del anchor
    return took * 1e6 / (PAGES_BYTES / mmap.PAGESIZE)


def config_text(i):
    return (f"BLOCK_M: {16 << i % 4}, BLOCK_N: {16 << i // 4 % 4}, BLOCK_K: {32 << i // 16 % 3}, waves_per_eu: {i // 48 % 3}, "
            f"num_warps: {1 << i // 144 % 4}, num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, "
            "reg_dec_producer: 0, reg_inc_consumer: 0, maxnreg: None")


def dejavu_tree(folder):
    """Tables of 1,000 keys, as triton-dejavu writes them."""
    names = hashlib.sha256(b"M|N|K").hexdigest()
    for t in range(TABLES):
        keys = [f"('{16 * (i + 1)}', '{64 * (t + 1)}', '4096', 'torch.float16', 'torch.float16')" for i in range(ENTRIES // TABLES)]
        path = folder / (f"dejavu_0.7/triton_3.3.1/rocm_6.4.1/gpu_AMD_Instinct_MI300X/matmul_{t}/autotune_config-{'a' * 64}/"
                         f"code_version-{t:064x}/tune_features-{names}/kernel_configs-{'d' * 64}/default")
        path.mkdir(parents=True)
        (path / "cache.json").write_text(json.dumps({
            "signature": f"JITFunction(model:matmul_{t})", "total_bench_time_s": 1.5, "evaluated_configs": CONFIGS,
            "keys": ["M", "N", "K"], "cache": {key: config_text(7 * i % CONFIGS) for i, key in enumerate(keys)},
            "timings": {key: [0.0001 * (i + 1)] for i, key in enumerate(keys)},
            "timings_data": {"labels": ["ms"], "rep_t_ms": 100, "warmup_t_ms": 25, "cuda_graphs": False}}, indent=4))


def triton_tree(folder):
    """Files as Triton's autotuner writes them, in folders of 52 characters."""
    for i in range(TRITON_FILES):
        name = base64.b32encode(hashlib.sha256(b"%d" % i).digest()).decode().rstrip("=")
        (folder / name).mkdir(parents=True)
        config = {"kwargs": {"BLOCK": 16 << i % 6}, "num_warps": 4, "num_ctas": 1, "num_stages": 2, "maxnreg": None, "pre_hook": None}
        (folder / name / "add_kernel.autotune.json").write_text(json.dumps(
            {"key": [16 * (i + 1), "torch.float16"], "configs_timings": [[config, [0.25, 0.24, 0.26]]]}))


def publish(server, bench, format, tree):
    tree(bench.folder / format)
    environment = json.dumps(ENVIRONMENT)
    harness.wavetune(server, "import", format, bench.folder / format, "--environment", environment, "--tag", format)
    harness.wavetune(server, "publish", "--environment", environment, "--tag", format, "--channel", "stable", "--sign-key",
                     bench.folder / "publisher")


class Fetches:
    """Fetches of one format into new folders, or again into the last one."""

    def __init__(self, server, bench, format, tag):
        self.server, self.bench, self.format, self.tag, self.runs = server, bench, format, tag, 0

    def run(self, again=False):
        """The times of the parts in ms; "process" is from its start to its end, "CPU" its CPU time."""
        self.runs += not again
        self.cache = self.bench.folder / f"cache-{self.format}-{self.runs}"
        command = [harness.BUILD / "wavetune", "fetch", "--to", self.cache, "--format", self.format, "--tag", self.tag,
                   "--environment", json.dumps(ENVIRONMENT), "--trusted-key", self.bench.folder / "publisher.pub", "--json"]
        began = time.perf_counter()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              env={**os.environ, "WAVETUNE_URL": self.server.url, "WAVETUNE_TOKEN": self.server.token,
                                   "WAVETUNE_BUDGET_MS": "60000", "WAVETUNE_KFD_TOPOLOGY": "/nowhere"})
        process = (time.perf_counter() - began) * 1e3
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3
        answer = json.loads(done.stdout)
        assert done.returncode == 0 and answer["outcome"] == ("unchanged" if again else "fresh"), done
        return {**answer["took_ms"], "process": process, "CPU": cpu}


def print_parts(name, runs):
    medians = {part: statistics.median(run[part] for run in runs) for part in runs[0]}
    inside = [sum(ms for part, ms in run.items() if part not in ("process", "CPU")) for run in runs]
    print(f"  {name:17} " + "  ".join(f"{part} {ms:.1f}" for part, ms in medians.items() if part not in ("process", "CPU")) +
          f"  together {driver.spread(inside, 1)}; process {medians['process']:.1f}, {medians['CPU']:.1f} of CPU", flush=True)
    return statistics.median(inside)


def files_write(source, folder, empty, sync):
    """us for making a folder and a file of each name in `source`. sync: None, "each" file, or "once"."""
    content = [(f"{p.parent.name}/{p.name}", p.parent.name, b"" if empty else p.read_bytes())
               for p in source.glob("*/*.autotune.json")]
    content = content[:SYNCED_FILES] if sync == "each" else content
    folder.mkdir()
    root = os.open(folder, os.O_RDONLY)
    began = time.perf_counter()
    for path, parent, data in content:
        os.mkdir(parent, dir_fd=root)
        file = os.open(path, os.O_WRONLY | os.O_CREAT, dir_fd=root)
        if data:
            os.write(file, data)
        if sync == "each":
            os.fsync(file)
        os.close(file)
    if sync == "once":
        LIBC.syncfs(root)
    took = time.perf_counter() - began
    os.close(root)
    return took * 1e6 / len(content)


def measure_files(fetches, runs):
    """Fetches, and the same files made by hand, in turn: the medians in us a file of the fetch and of empty files."""
    cases = {"empty files": (True, None), "same bytes": (False, None), "same bytes, syncfs": (False, "once"),
             "same bytes, fsync each": (False, "each")}
    took, parts = {name: [] for name in cases}, []
    fetches.run()
    source = fetches.cache / "current/triton"
    for i in range(runs):
        parts.append(fetches.run())
        for name, (empty, sync) in cases.items():
            took[name].append(files_write(source, fetches.bench.folder / f"scratch-{i}-{name.replace(' ', '-')}", empty, sync))
    print_parts("triton", parts)
    for name, us in took.items():
        print(f"  {name:24} {driver.spread(us, 1)} us a file, with its folder", flush=True)
    written = statistics.median(run["render"] + run["write"] for run in parts) * 1e3 / TRITON_FILES
    return written, statistics.median(took["empty files"])


def measure_fetches(server, bench, runs):
    """Parts 1 and 2; returns the lines of ratios."""
    print(f"{ENTRIES:,} entries, ms, medians of {runs} fetches into new folders", flush=True)
    together = {}
    for format in ("json", "dejavu"):
        fetches = Fetches(server, bench, format, "dejavu")
        fetches.run()
        together[format] = print_parts(format, [fetches.run() for _ in range(runs)])
        unchanged = print_parts(f"{format}, unchanged", [fetches.run(again=True) for _ in range(runs)])
    version = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run([harness.BUILD / "wavetune", "--version"], capture_output=True, check=True)
        version.append((time.perf_counter() - began) * 1e3)
    print(f"  wavetune --version: {driver.spread(version, 1)} ms, the cost of any process here")

    publish(server, bench, "triton", triton_tree)
    print(f"{TRITON_FILES:,} files of the triton format, ms", flush=True)
    written, empty = measure_files(Fetches(server, bench, "triton", "triton"), runs)
    return [*(f"{ENTRIES:,} entries as {format}: {ms / 100:.2f} of the goal of 100 ms" for format, ms in together.items()),
            f"unchanged: {unchanged:.2f} ms, one 304",
            f"triton: {written:.1f} us a file rendered, written and synced, {written / empty:.2f} x an empty file"]


def measure_starts(server, bench, runs):
    """Part 3; returns the lines of ratios."""
    members = "&".join(f"{name}={urllib.parse.quote(str(value))}" for name, value in ENVIRONMENT.items())
    question = f"/v1/cache?channel=stable&tag=dejavu&{members}"
    answer = server.request("GET", question)
    release = f"/v1/releases/{answer.json['release']}"
    body = server.request("GET", release).body
    print(f"{CONTAINERS:,} containers at once, {len(body):,} bytes each, {runs} rounds in turn", flush=True)

    authority = certificates.Authority(bench.folder)
    pair = authority.server()
    secured = certificates.TlsServer(server.database, bench.folder, authority, pair)
    bench.programs.callback(secured.stop)
    web, port, tls_port = nginx_start(bench, body, pair)
    (bench.folder / "www/entry.json").write_bytes(answer.body)
    static = [driver.get_request(path) for path in ("/entry.json", "/release.json")]
    served = [driver.get_request(path, server.token) for path in (question, release)]
    sides = {"nginx": (web.pid, port, static), "wavetune": (server.process.pid, server.port, served),
             "nginx, TLS": (web.pid, tls_port, static, "https"),
             "wavetune, TLS": (secured.process.pid, secured.port, served, "https")}
    seen = driver.compare_starts(sides, CONTAINERS, runs)
    ratios = []
    for tls in ("", ", TLS"):
        p50, p99, last = (statistics.median(seen["wavetune" + tls][label]) / statistics.median(seen["nginx" + tls][label])
                          for label in ("p50", "p99", "last"))
        ratios.append(f"{CONTAINERS:,} starts at once{tls}: p50 {p50:.2f} x, p99 {p99:.2f} x, all done {last:.2f} x nginx's")
    return ratios


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--starts"]
    runs = int(arguments[0]) if arguments else 9
    driver.need("nginx", "nginx-light")
    with driver.Bench() as bench:
        server = bench.server()
        harness.wavetune(None, "key", "new", bench.folder / "publisher")
        publish(server, bench, "dejavu", dejavu_tree)
        bench.print_machine()
        ratios = []
        if "--starts" not in sys.argv:
            print(f"pages: {page_touch_us():.1f} us for the first touch of each", flush=True)
            ratios += measure_fetches(server, bench, runs)
        ratios += measure_starts(server, bench, runs)
        for ratio in ratios:
            print(f"ratio: {ratio}")


if __name__ == "__main__":
    main()
