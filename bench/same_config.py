"""A/A: one config under several names must not beat itself.

    bench/same_config.py [--device cuda0]… [--names 5] [--comparisons 1000] [--json FILE]

The space is a list of the same config under NAME = 0, 1, …, which the source does not read (hip on a GPU, c on the CPU);
every job tunes it for a key like any other space. A comparison is one name against the incumbent in one job. Counted are jobs
whose winner is FASTER, and those that would replace a served winner (FASTER by at least 2 %); each with its Wilson interval
over jobs and, as the share of comparisons, over those.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import statistics
import tempfile

import tuning

GPU = [("vector_add", "hip", ["n"], [(n,) for n in (1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23, 1 << 24, 100003, 300000,
                                                   1000003, 3000001, 10000001)]),
       ("softmax", "hip_online", ["rows", "columns"], [(rows, columns) for columns in (512, 1024, 4096)
                                                       for rows in (256, 512, 1024, 2048)]),
       ("matmul", "hip", ["M", "N", "K"], [(m, n, k) for m in (256, 512, 1024) for n in (512, 1024) for k in (512, 1024)])]
CPU = [("softmax", "online", ["rows", "columns"], [(64, 1024), (256, 256), (32, 4096), (512, 128)]),
       ("vector_add", "c", ["n"], [(100003,), (1 << 18,), (1 << 20,), (300000,)])]


def same(place, version, names, keys, count):
    kernel = tuning.Kernel(place, version, names, keys)
    manifest = json.loads((kernel.place / "kernel.json").read_text())
    space = json.loads((kernel.place / manifest["versions"][version]["space"]).read_text())
    kernel.space = {"configs": [{**space["default"], "NAME": n} for n in range(count)],
                    "roles": space.get("roles", {}), "default": {**space["default"], "NAME": 0}}
    return kernel


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append")
    parser.add_argument("--names", type=int, default=5)
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    devices = arguments.device or ["cpu0"]
    table = CPU if devices[0].startswith("cpu") else GPU
    jobs = []
    with tempfile.TemporaryDirectory(prefix="wt-same-") as scratch:
        kernels = [same(*row, arguments.names) for row in table]
        per_round = len(devices) * sum(len(kernel.keys) for kernel in kernels) * (arguments.names - 1)
        for kernel in kernels:
            kernel.folder(scratch)

        def share(index):
            device, lines = devices[index], []
            for n in range(math.ceil(arguments.comparisons / per_round)):
                for kernel in kernels:
                    # Tuning a key again is another job, with another seed and other processes.
                    lines += [(kernel.name, line) for line in tuning.tune(kernel, scratch, None, device, None,
                                                                          ["--seed", str(1 + n)]).lines]
            return lines

        with concurrent.futures.ThreadPoolExecutor(len(devices)) as pool:
            jobs = [job for lines in pool.map(share, range(len(devices))) for job in lines]
    decided = [(name, line["verdict"]) for name, line in jobs if "verdict" in line]
    comparisons = len(decided) * (arguments.names - 1)
    faster = [v for _, v in decided if v["verdict"] == "FASTER"]
    replacing = [v for v in faster if v["baseline_ratio"] <= 1 - 0.02]
    print(f"{len(decided)} jobs of {arguments.names} names, {comparisons} comparisons, {len(jobs) - len(decided)} without a verdict")
    for what, found in (("FASTER", faster), ("would replace a served winner", replacing)):
        low, high = tuning.wilson(len(found), len(decided))
        of_low, of_high = tuning.wilson(len(found), comparisons)
        print(f"{what}: {len(found)}; of the jobs {100 * len(found) / len(decided):.2f} % ({100 * low:.2f} to {100 * high:.2f}), of "
              f"the comparisons {100 * len(found) / comparisons:.2f} % ({100 * of_low:.2f} to {100 * of_high:.2f})")
    for kernel in sorted({name for name, _ in decided}):
        ratios = [v["baseline_ratio"] for name, v in decided if name == kernel]
        print(f"{kernel}: winner / incumbent median {statistics.median(ratios):.4f}, least {min(ratios):.4f}; verdicts " + ", ".join(
            f"{outcome} {sum(name == kernel and v['verdict'] == outcome for name, v in decided)}"
            for outcome in ("SAME", "AMBIGUOUS", "FASTER", "SLOWER")))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps([v for _, v in decided]))


if __name__ == "__main__":
    main()
