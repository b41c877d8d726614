"""Tuning against an autotuner: the same kernels, the same configs, the same device, side by side in one run.

    bench/versus_autotuner.py [--gpus N] [--kernel NAME]… [--keys N] [--every E] [--skip N] [--rounds N] [--processes N] [--limit S]
        [--cold] [--json FILE]

On GPUs the peer is Triton's own autotuner (bench/triton_autotune.py, compiled and loaded beforehand); with --cpu it is
bench/fixed_budget.py, which does the same to kernels in C. Every key is tuned by both and compared with an oracle: every
config in PROCESSES processes of ROUNDS interleaved rounds; only configs that are surely a fifth slower than the best leave
early. Printed for every key: the seconds of both, their ratio, the loss of each choice against the oracle's best (regret),
the noise floor. Wavetune's seconds of a key are those of the whole process divided by the number of keys; beside them are
those of one key alone, and with --cold those of compiling and tuning one key from nothing on the same cores. Four keys at a
time go to the peer and the oracle, and their results are printed at once; --limit seconds after a kernel was packed no more
are compared. With --gpus N each GPU runs a whole campaign, and compares every Nth key with the peer and the oracle, with
--every E every Eth of those, with --skip S those after the first S (which a run with --limit has printed); --cold runs one
kernel on each, with its share of the cores (and nothing else with --keys 0).
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import tuning

GROUP = 4  # keys that are compared together: a run that is cut off has printed the earlier ones
BENCH = pathlib.Path(__file__).resolve().parent


def peer(kernel, scratch, keys, gpu, cpu, warm, repeat=1, cache=None, cores=None):
    """The autotuner's lines for these keys, on these cores."""
    listed = pathlib.Path(scratch, f"peer-{kernel.name.replace(':', '-')}-{gpu}-{time.monotonic_ns()}.jsonl")
    listed.write_text("".join(json.dumps(key) + "\n" for key in keys))
    command = [sys.executable, BENCH / ("fixed_budget.py" if cpu else "triton_autotune.py"), kernel.folder(scratch), listed,
               "--repeat", str(repeat)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": tuning.visible_gpu(gpu), "TRITON_CACHE_DIR": str(cache or f"{scratch}/triton")}
    if warm and not cpu:
        command += ["--warm", str(warm)]
    done = subprocess.run(tuning.on_cores(cores, command), stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(kernel, scratch, build, everything, gpu, arguments):
    """One GPU's share: a campaign over all keys, then peer and oracle over its share of them; `everything` is a build that
    also has the configs that pack leaves out."""
    device = "cpu0" if arguments.cpu else f"cuda{gpu}"
    keys = kernel.keys[:arguments.keys]
    mine = list(range(arguments.skip + gpu * arguments.every, len(keys), arguments.gpus * arguments.every))
    place = pathlib.Path(scratch, f"gpu{gpu}")
    place.mkdir(exist_ok=True)
    if arguments.cpu:
        tuning.tune(kernel, place, build, device, keys)  # compiles: both sides begin with compiled code
    campaign = tuning.tune(kernel, place, build, device, keys)
    alone = tuning.tune(kernel, place, build, device, [keys[mine[0]]])
    print(f"  {kernel.name} on {device}: a campaign of {len(keys)} keys {campaign.seconds:.1f} s, one key alone {alone.seconds:.1f} s",
          flush=True)
    rows = []
    for begin in range(0, len(mine), GROUP):
        if rows and time.monotonic() > arguments.end:
            print(f"  {kernel.name} on {device}: {len(mine) - begin} of {len(mine)} keys are left out: --limit", flush=True)
            break
        rows += compare_group(kernel, place, everything, gpu, mine[begin:begin + GROUP], campaign, arguments)
    return {"rows": rows, "campaign_s": campaign.seconds, "summary": campaign.summary, "alone_s": alone.seconds,
            "alone_key": keys[mine[0]]}


def compare_group(kernel, place, everything, gpu, group, campaign, arguments):
    """The rows of a few of the campaign's keys, by index: the time and choice of the peer, and the regret of both choices by
    the oracle."""
    device = "cpu0" if arguments.cpu else f"cuda{gpu}"
    keys = kernel.keys[:arguments.keys]
    lines = peer(kernel, place, [keys[i] for i in group], gpu, arguments.cpu, arguments.warm)
    spent = sum(line["seconds"] for line in lines)
    print(f"  {kernel.name} on {device}: the peer {spent:.1f} s for {len(group)} keys, "
          f"{spent / len(group) / (campaign.seconds / len(keys)):.1f}x", flush=True)
    exact = tuning.oracle(kernel, place, everything, device, [keys[i] for i in group], arguments.rounds, arguments.processes)
    rows = []
    for k, i in enumerate(group):
        line = campaign.lines[i]
        if "winner" not in line:
            rows.append({"key": keys[i], "error": line.get("error", "no winner")})
            continue
        rows.append({"kernel": kernel.name, "key": keys[i], "gpu": gpu, "configs": line["configs"],
                     "peer_s": lines[k]["seconds"], "wavetune_s": campaign.seconds / len(keys),
                     "own_s": sum(line["seconds"].values()), "verdict": line["verdict"]["verdict"],
                     "equivalents": len(line["verdict"]["equivalence_set"]),
                     "regret": exact.regret(k, line["winner"]["config"]),
                     "regret_bound": line["verdict"]["regret_bound"],
                     "peer_regret": exact.regret(k, kernel.ordinal(lines[k]["config"])),
                     "winner_us": line["verdict"]["winner_us"], "oracle_samples": exact.samples[k]})
        print(f"    {tuning.key_text(keys[i])}: regret {100 * rows[-1]['regret']:.2f} %, the peer's "
              f"{100 * rows[-1]['peer_regret']:.2f} %", flush=True)
    return rows


def cold(kernel, scratch, arch, gpu, cores):
    """One key from nothing: compiling and tuning on some cores, against Triton's autotuner with an empty cache on the same."""
    keys = kernel.keys[:1]
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        begin = time.monotonic()
        build, packed = tuning.pack(kernel, place, arch, keys, cores)
        campaign = tuning.tune(kernel, place, build, f"cuda{gpu}", keys, cores=cores)
        ours = time.monotonic() - begin
        begin = time.monotonic()
        line = peer(kernel, place, keys, gpu, False, 0, cache=f"{place}/empty", cores=cores)[0]
        theirs = time.monotonic() - begin
    return {"kernel": kernel.name, "key": keys[0], "wavetune_s": ours, "packing_s": packed, "tuning_s": campaign.seconds,
            "peer_s": theirs, "peer_call_s": line["seconds"], "cores": cores}


def cold_all(kernels, scratch, arch, gpus):
    """Every kernel's first key from nothing, as many at once as there are GPUs, each with its share of the cores."""
    at_once, cores = min(gpus, len(kernels)), sorted(os.sched_getaffinity(0))
    share = len(cores) // at_once
    print(f"\ncold, one key, {at_once} at once on {share} cores each; both times are of whole processes")
    rows = []
    for i in range(0, len(kernels), at_once):
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            rows += pool.map(lambda job: cold(job[1], scratch, arch, job[0], ",".join(
                map(str, cores[job[0] * share:(job[0] + 1) * share]))), enumerate(kernels[i:i + at_once]))
    for row in rows:
        print(f"{row['kernel']} {tuning.key_text(row['key'])}: Triton {row['peer_s']:.1f} s (its call {row['peer_call_s']:.1f}), here "
              f"{row['wavetune_s']:.1f} s (packing {row['packing_s']:.1f}, tuning {row['tuning_s']:.1f}): "
              f"{row['peer_s'] / row['wavetune_s']:.1f}x, of its call {row['peer_call_s'] / row['wavetune_s']:.1f}x")
    return rows


def show(kernel, shares):
    rows = [row for share in shares for row in share["rows"]]
    print(f"\n{kernel.name}: {len(rows)} keys of {rows[0].get('configs', '?')} configs; a campaign of "
          f"{shares[0]['summary']['keys']} keys took {', '.join('%.1f s' % s['campaign_s'] for s in shares)}")
    print(f"{'key':44} {'peer s':>8} {'ours s':>8} {'ratio':>7} {'regret':>8} {'peer':>8} {'bound':>7} {'set':>4}  verdict")
    for row in rows:
        if "error" in row:
            print(f"{tuning.key_text(row['key']):44} {row['error']}")
            continue
        print(f"{tuning.key_text(row['key']):44} {row['peer_s']:8.2f} {row['wavetune_s']:8.3f} "
              f"{row['peer_s'] / row['wavetune_s']:6.1f}x {100 * row['regret']:7.2f}% {100 * row['peer_regret']:7.2f}% "
              f"{100 * row['regret_bound']:6.1f}% {row['equivalents']:4}  {row['verdict']}")
    rows = [row for row in rows if "error" not in row]
    ratios = [row["peer_s"] / row["wavetune_s"] for row in rows]
    print(f"ratio: {min(ratios):.1f} to {max(ratios):.1f}, geometric mean {tuning.geometric_mean(ratios):.1f}x; regret: worst "
          f"{100 * max(r['regret'] for r in rows):.2f} %, above 1 % in {sum(r['regret'] > 0.01 for r in rows)} of "
          f"{len(rows)} keys (peer: worst {100 * max(r['peer_regret'] for r in rows):.2f} %, "
          f"{sum(r['peer_regret'] > 0.01 for r in rows)})")
    for share in shares:
        peer_s = next(row["peer_s"] for row in share["rows"] if row["key"] == share["alone_key"])
        print(f"one key alone ({tuning.key_text(share['alone_key'])}): {share['alone_s']:.2f} s of one process, peer "
              f"{peer_s:.2f} s: {peer_s / share['alone_s']:.1f}x")
    spent = shares[0]["summary"].get("spent", {})
    print("the first campaign's seconds went to: " + ", ".join(f"{name} {value:.1f}" for name, value in spent.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--kernel", action="append", choices=sorted({k.name.split(":")[0] for k in tuning.CPU + tuning.TRITON}))
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="keys at the beginning that are tuned with the others and not compared")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds of a kernel after which no more of its keys are compared; the first four are")
    parser.add_argument("--warm", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.cpu:
        arguments.gpus = 1
    kernels = [k for k in (tuning.CPU if arguments.cpu else tuning.TRITON)
               if not arguments.kernel or k.name.split(":")[0] in arguments.kernel]
    if not kernels:
        parser.error("with --cpu the only kernel is " + " ".join(k.name.split(":")[0] for k in tuning.CPU))
    shortest = min(len(kernel.keys[:arguments.keys]) for kernel in kernels)
    if arguments.skip < 0:
        parser.error("--skip is a number of keys, 0 or more")
    if arguments.keys and shortest <= arguments.skip + (arguments.gpus - 1) * arguments.every:
        parser.error(f"{arguments.gpus} GPUs, --every {arguments.every} and --skip {arguments.skip} leave a GPU none of {shortest} keys "
                     "to compare: lower one of them or name more --keys")
    answer = {"cores": len(os.sched_getaffinity(0)), "kernels": []}
    print(f"{answer['cores']} cores, {arguments.gpus} device(s); oracle: {arguments.processes} processes of "
          f"{arguments.rounds} rounds")
    with tempfile.TemporaryDirectory(prefix="wt-versus-") as scratch:
        for kernel in kernels if arguments.keys else []:
            build = everything = None
            if not arguments.cpu:
                keys = kernel.keys[:arguments.keys]
                build, seconds = tuning.pack(kernel, scratch, arguments.arch, keys)
                everything, whole = tuning.pack(kernel, scratch, arguments.arch, keys, options=["--keep-spilling"])
                print(f"{kernel.name}: packed in {seconds:.1f} s, for the oracle with what spills in {whole:.1f} s")
            arguments.end = time.monotonic() + arguments.limit
            with concurrent.futures.ThreadPoolExecutor(arguments.gpus) as pool:
                shares = list(pool.map(lambda gpu, k=kernel, b=build, e=everything: compare(k, scratch, b, e, gpu, arguments),
                                       range(arguments.gpus)))
            show(kernel, shares)
            answer["kernels"].append({"kernel": kernel.name, "shares": shares})
            sys.stdout.flush()
            if arguments.json:
                pathlib.Path(arguments.json).write_text(json.dumps(answer))
        if arguments.cold and not arguments.cpu:
            answer["cold"] = cold_all(kernels, scratch, arguments.arch, arguments.gpus)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
