#!/usr/bin/env python3
"""Search strategies replayed over measurements: how far from the best each is after 5, 10, 20 and 50 % of a space.

    bench/simulate.py [FILE…] [--synthetic N] [--repeat R] [--trials N,…] [--default PERCENT,…]

FILE is what `wavetune-agent tune --samples FILE` wrote; with `--exhaustive ROUNDS` no config left its race early. Or it is a
`.csv.xz` of shared/data/t4, spaces that others measured on their GPUs: with --default the search begins with a config than which
this percentage of the correct ones is faster, without it with a random one. Without a file, spaces of the CPU
kernels of this tree are measured first. --trials: after so many trials, in place of the shares. --synthetic adds N landscapes of a model of a GPU's matrix
multiplication: for trying strategies, not for claims. Every figure is the mean regret over R searches with seeds of their
own, in brackets its ratio to the expectation of random draws, in closed form: a strategy is useful below 1.
"""

import argparse
import csv
import itertools
import json
import lzma
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import driver  # noqa: E402
import harness  # noqa: E402

SHARES = (0.05, 0.10, 0.20, 0.50)
STRATEGIES = ("random", "descent", "evolution")
CPU_KERNELS = (("vector_add:c", ("n=65537",)), ("softmax:online", ("rows=64,columns=512", "rows=8,columns=4096")))


def synthetic(seed):
    """Lines of measurements of a matrix multiplication on a GPU that does not exist: roofline, waves of workgroups,
    registers and shared memory that run out, and 3 % of what no model explains."""
    choice = random.Random(seed)
    m, n, k = (choice.choice([64, 512, 2048, 4096, 8192]) for _ in range(3))
    cus, flops_per_us, bytes_per_us = 128, 4e8, 3e6
    axes = {"BLOCK_M": [16, 32, 64, 128, 256], "BLOCK_N": [16, 32, 64, 128, 256], "BLOCK_K": [16, 32, 64, 128],
            "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3, 4], "GROUP_M": [1, 4, 8, 16]}
    rugged = random.Random(seed + 1)

    def time_us(c):
        shared = (c["BLOCK_M"] + c["BLOCK_N"]) * c["BLOCK_K"] * 2 * c["num_stages"]
        accumulators = c["BLOCK_M"] * c["BLOCK_N"] / (c["num_warps"] * 64)
        if shared > 196608 or accumulators > 1024:
            return None
        groups = math.ceil(m / c["BLOCK_M"]) * math.ceil(n / c["BLOCK_N"])
        resident = max(1, min(196608 // max(shared, 1), 32 // c["num_warps"], int(512 / (accumulators + 32))))
        waves = math.ceil(groups / (cus * resident)) * resident / max(groups / cus, 1e-9)
        steps = math.ceil(k / c["BLOCK_K"])
        compute = 2 * groups * c["BLOCK_M"] * c["BLOCK_N"] * steps * c["BLOCK_K"] / flops_per_us
        compute /= min(1, (c["BLOCK_M"] * c["BLOCK_N"]) / 16384) ** 0.5 * min(1, c["BLOCK_K"] / 64) ** 0.25
        reuse = 1 + 0.3 * math.log2(c["GROUP_M"]) * (groups > 4 * cus)
        memory = groups * (c["BLOCK_M"] + c["BLOCK_N"]) * steps * c["BLOCK_K"] * 2 / bytes_per_us / reuse / 8
        hidden = 1 - 0.85 ** (c["num_stages"] * resident * c["num_warps"] ** 0.5)
        spills = 1 + max(0, accumulators - 256) / 256
        return (max(compute, memory) * waves + min(compute, memory) * (1 - hidden) + 2) * spills * \
            math.exp(rugged.gauss(0, 0.03))

    configs = [{}]
    for name, values in axes.items():
        configs = [{**c, name: v} for c in configs for v in values]
    times = [time_us(c) for c in configs]
    baseline = next(i for i, t in enumerate(times) if t and configs[i]["BLOCK_M"] == 64)
    for i, (config, time) in enumerate(zip(configs, times)):
        row = {"kernel": f"synthetic {seed}", "key": {"M": m, "N": n, "K": k}, "config": i, "config_values": config,
               "stage": "final", "process": 0, "baseline": baseline, "outcome": "correct" if time else "runtime"}
        if time:
            row |= {"samples_us": [time], "baseline_us": [times[baseline]]}
        yield row


def published(path, default):
    """Lines of measurements of a file of T4: the parameters that vary, `status`, and `samples_ns` of 32 runs. The default is
    a config of that percentile of speed; None: there is none."""
    lines = csv.DictReader(itertools.islice(lzma.open(path, "rt"), 1, None))
    names = lines.fieldnames[:lines.fieldnames.index("status")]
    configs = [({name: int(line[name]) for name in names}, [int(ns) / 1e3 for ns in line["samples_ns"].split()]
                if line["status"] == "ok" else []) for line in lines]
    order = sorted((i for i, (_, times) in enumerate(configs) if times), key=lambda i: statistics.median(configs[i][1]))
    baseline = order[0] if default is None else order[round(default / 100 * (len(order) - 1))]
    unit = statistics.median(configs[baseline][1])
    for i, (config, times) in enumerate(configs):
        row = {"kernel": path.name.removesuffix(".csv.xz"), "key": {"default": "none" if default is None else default}, "config": i,
               "config_values": config, "stage": "final", "process": 0, "outcome": "correct" if times else "runtime"}
        if default is not None:
            row["baseline"] = baseline
        if times:
            row |= {"samples_us": [statistics.median(times)], "baseline_us": [unit]}
        yield row


def measure_here(folder):
    """Files of measurements of CPU kernels, every config in every process: an oracle, as far as this machine is quiet."""
    for kernel, keys in CPU_KERNELS:
        path = folder / f"{kernel.replace(':', '-')}.jsonl"
        (folder / "keys").write_text("".join(f"{key}\n" for key in keys))
        command = [driver.need_build("wavetune-agent"), "tune", harness.KERNELS / kernel, "--exhaustive", "20", "--samples",
                   path, "--keys", folder / "keys"]
        print("measuring:", " ".join(str(c) for c in command), file=sys.stderr)
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{kernel} was not measured: {done.stderr.strip()[-500:]}")
        yield path


def simulate(path, strategy, repeat, trials):
    """{(kernel, key): landscape} as `wavetune simulate` answers for so many trials; 0: all."""
    done = subprocess.run([driver.need_build("wavetune"), "simulate", path, "--strategy", strategy, "--json", "--repeat",
                           str(repeat), "--trials", str(trials)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return {(k["kernel"], json.dumps(k["key"])): k for k in json.loads(done.stdout)["keys"]}


def table(path, repeat, counts):
    """Rows (kernel, key, configs, failed, best, {column: {strategy: regret}}); "expected" is random's closed form. A search
    knows its number of trials, so each column, one of `counts` or of SHARES, is a search of its own."""
    rows = []
    for name, whole in simulate(path, "random", 1, 0).items():
        row = {"name": name, "whole": whole, "regrets": {}}
        for column, trials in ((str(n), n) for n in counts) if counts else ((f"{100 * share:.0f} %", max(1, round(
                share * whole["configs"]))) for share in SHARES):
            regrets = {}
            for strategy in STRATEGIES:
                answer = simulate(path, strategy, repeat, trials)[name]
                regrets[strategy] = answer["strategies"][strategy]["mean"][-1]
                regrets["expected"] = answer["random_expected"][-1]
            row["regrets"][column] = regrets
        rows.append(row)
    return rows


def cell(regrets, strategy):
    over = regrets["expected"]
    return f"{100 * regrets[strategy]:6.2f} % ({regrets[strategy] / over:4.2f})" if over > 0 else \
        f"{100 * regrets[strategy]:6.2f} %       "


def show(rows):
    for row in rows:
        kernel, key = row["name"]
        whole = row["whole"]
        print(f"{kernel} {key}: {whole['configs']} configs, {whole['failed']} failed; best {whole['best']['ratio']:.4f} of "
              f"the baseline's time")
        print(f"{'trials':>7} {'random expects':>15}" + "".join(f"{s:>18}" for s in STRATEGIES))
        for column, regrets in row["regrets"].items():
            print(f"{column:>7} {100 * regrets['expected']:13.2f} %" +
                  "".join(f"{cell(regrets, s):>18}" for s in STRATEGIES))
        print()
    print(f"geometric mean of regret over random's expectation (mean regret), {len(rows)} keys")
    for strategy in STRATEGIES:
        cells = []
        for column in rows[0]["regrets"]:
            ratios = [max(r["regrets"][column][strategy], 1e-4) / max(r["regrets"][column]["expected"], 1e-4) for r in rows]
            mean = statistics.fmean(r["regrets"][column][strategy] for r in rows)
            cells.append(f"{column}: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} ({100 * mean:.1f} %)")
        print(f"  {strategy:<10} " + "   ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--synthetic", type=int, default=0, metavar="N")
    parser.add_argument("--repeat", type=int, default=100, metavar="R")
    parser.add_argument("--trials", type=lambda text: [int(n) for n in text.split(",")], default=[], metavar="N,…")
    parser.add_argument("--default", type=lambda text: [float(n) for n in text.split(",")], default=[None], metavar="PERCENT,…")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wt-bench-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        files = [pathlib.Path(f) for f in options.files if not f.endswith(".csv.xz")]
        for at, path in enumerate(f for f in options.files if f.endswith(".csv.xz")):
            files.append(folder / f"{at}.jsonl")
            files[-1].write_text("".join(json.dumps(row) + "\n" for default in options.default
                                         for row in published(pathlib.Path(path), default)))
        if options.synthetic:
            (folder / "synthetic.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for seed in range(options.synthetic) for row in synthetic(seed)))
            files.append(folder / "synthetic.jsonl")
        if not files:
            files = list(measure_here(folder))
        print(f"on {os.uname().nodename}: {os.cpu_count()} cores; {options.repeat} searches of each strategy\n")
        show([row for path in files for row in table(path, options.repeat, options.trials)])


if __name__ == "__main__":
    main()
