"""The same campaign again and again: does it choose the same winners?

    bench/campaigns.py [--gpus N] [--campaigns 10] [--kernel NAME]… [--keys N] [--peer-keys N] [--cpu] [--json FILE]

Each campaign is a fresh process with a fresh seed. A pair of (key, campaign) agrees when its winner is in the equivalence set
that another campaign stored for the key. Printed: the share of all ordered pairs of campaigns that agree, with its Wilson
interval and the sizes of the sets. Beside it, for the first --peer-keys keys, the choices of the peer (Triton's autotuner on
GPUs, fixed_budget.py on the CPU) in as many runs: how many different ones, and how often they are in our sets. With --gpus N,
GPU i runs every Nth campaign, so that campaigns of different GPUs are compared too. Pairs of one GPU and of two are counted
separately, because two chips can really differ; for a key with a pair that does not agree, the choices of each GPU are printed.
"""

import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile

import tuning
from versus_autotuner import peer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--campaigns", type=int, default=10)
    parser.add_argument("--kernel", action="append")
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--peer-keys", type=int, default=4)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    gpus = 1 if arguments.cpu else arguments.gpus
    answer = []
    for kernel in tuning.CPU if arguments.cpu else tuning.TRITON:
        if arguments.kernel and kernel.name.split(":")[0] not in arguments.kernel:
            continue
        with tempfile.TemporaryDirectory(prefix="wt-campaigns-") as scratch:
            keys = kernel.keys[:arguments.keys]
            build = None if arguments.cpu else tuning.pack(kernel, scratch, arguments.arch, keys=keys)[0]
            folders = [pathlib.Path(scratch, f"gpu{gpu}") for gpu in range(gpus)]
            for folder in folders:
                folder.mkdir()

            def campaigns_of(gpu, kernel=kernel, build=build, folders=folders, keys=keys):
                return [tuning.tune(kernel, folders[gpu], build, "cpu0" if arguments.cpu else f"cuda{gpu}", keys,
                                    ["--seed", str(1 + n)]) for n in range(gpu, arguments.campaigns, gpus)]

            def choices_of(gpu, kernel=kernel, folders=folders, keys=keys):
                some = keys[:arguments.peer_keys][gpu::gpus]
                return peer(kernel, folders[gpu], some, gpu, arguments.cpu, max(1, len(os.sched_getaffinity(0)) // 2 // gpus),
                            arguments.campaigns) if some else []

            with concurrent.futures.ThreadPoolExecutor(gpus) as pool:
                shares = list(pool.map(campaigns_of, range(gpus)))
                campaigns = [c for share in shares for c in share]
                ran_on = [gpu for gpu, share in enumerate(shares) for c in share]
                choices = [line for share in pool.map(choices_of, range(gpus)) for line in share]
        show(kernel, keys, campaigns, ran_on, choices)
        answer.append({"kernel": kernel.name, "keys": keys, "choices": choices, "gpus": ran_on, "seconds": [c.seconds for c in campaigns],
                       "lines": [[{"winner": line.get("winner", {}).get("config"), "verdict": line.get("verdict")}
                                  for line in c.lines] for c in campaigns]})
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(answer))


def part(answers):
    """The share of the answers that are true, with its Wilson interval."""
    if not answers:
        return "none"
    low, high = tuning.wilson(sum(answers), len(answers))
    return f"{sum(answers)} of {len(answers)} = {100 * sum(answers) / len(answers):.2f} % ({100 * low:.2f} to {100 * high:.2f})"


def chosen(winners, gpus):
    """Which GPU chose which configs, how often."""
    return ", ".join(f"GPU {gpu}: " + " ".join(f"{config} ({n})" for config, n in collections.Counter(
        w for w, g in zip(winners, gpus) if g == gpu).most_common()) for gpu in sorted(set(gpus)))


def show(kernel, keys, campaigns, ran_on, choices):
    one_gpu, two_gpus, of_peer = [], [], []  # per pair: is the winner in the set?
    sizes, distinct, floors, processes, kept_out = [], [], [], [], 0
    print(f"\n{kernel.name}: {len(campaigns)} campaigns of {len(keys)} keys, {statistics.median(c.seconds for c in campaigns):.1f} s each")
    for i, key in enumerate(keys):
        tuned = [(c.lines[i], gpu) for c, gpu in zip(campaigns, ran_on) if "winner" in c.lines[i]]
        winners = [line["winner"]["config"] for line, _ in tuned]
        gpus = [gpu for _, gpu in tuned]
        verdicts = [line["verdict"] for line, _ in tuned]
        sets = [set(verdict["equivalence_set"]) for verdict in verdicts]
        sizes += [len(s) for s in sets]
        floors += [verdict["regret_bound"] for verdict in verdicts]
        processes += [verdict["processes"] for verdict in verdicts]
        finalists = [{f["config"] for f in verdict["finalists"]} for verdict in verdicts]
        distinct.append(len(set(winners)))
        inside = total = 0
        for a, b in itertools.permutations(range(len(tuned)), 2):
            agrees = winners[a] in sets[b]
            (one_gpu if gpus[a] == gpus[b] else two_gpus).append(agrees)
            kept_out += not agrees and winners[a] in finalists[b]
            inside, total = inside + agrees, total + 1
        note = f"; {chosen(winners, gpus)}" if inside < total else ""
        theirs = [kernel.ordinal(line["config"]) for line in choices if line["key"] == key]
        if theirs:
            answers = [choice in s for choice in theirs for s in sets]
            of_peer += answers
            note += f"; the peer chose {len(set(theirs))} different in {len(theirs)} runs, in our sets {sum(answers)} of {len(answers)}"
        print(f"{tuning.key_text(key):44} {len(set(winners))} winners, {inside} of {total} pairs inside{note}")
    answers = one_gpu + two_gpus
    print(f"winner inside the stored equivalence set: {part(answers)}; sets: median {statistics.median(sizes)}, largest {max(sizes)}; "
          f"different winners a key: mean {statistics.mean(distinct):.2f}; noise floor (regret bounds): median "
          f"{100 * statistics.median(floors):.2f} %, worst {100 * max(floors):.2f} %")
    if two_gpus:
        print(f"pairs of one GPU: {part(one_gpu)}; of two: {part(two_gpus)}")
    print(f"of the {len(answers) - sum(answers)} outside {kept_out} were finalists that their interval kept out; "
          f"{sum(p > 3 for p in processes)} of {len(processes)} verdicts took more than 3 processes")
    if of_peer:
        print(f"the peer's choices inside those sets: {part(of_peer)}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
