"""The same campaign again and again: does it choose the same winners?

    bench/campaigns.py [--gpus N] [--campaigns 10] [--kernel NAME]… [--keys N] [--peer-keys N] [--cpu] [--json FILE]

Each campaign is a fresh process with a fresh seed. A pair of (key, campaign) agrees when its winner lies in the equivalence
set that another campaign stored for the key: of all ordered pairs of campaigns the share is printed, with its Wilson
interval and the sizes of the sets. Beside it, for the first --peer-keys keys, the choices of the peer (Triton's autotuner on
GPUs, fixed_budget.py on the CPU) in as many runs: how many different ones, and how often they lie in our sets.
With --gpus N, GPU i runs every Nth campaign, so that what is compared comes from different GPUs too.
"""

import argparse
import concurrent.futures
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
                campaigns = [c for share in pool.map(campaigns_of, range(gpus)) for c in share]
                choices = [line for share in pool.map(choices_of, range(gpus)) for line in share]
        show(kernel, keys, campaigns, choices)
        answer.append({"kernel": kernel.name, "keys": keys, "choices": choices, "seconds": [c.seconds for c in campaigns],
                       "lines": [[{"winner": line.get("winner", {}).get("config"), "verdict": line.get("verdict")}
                                  for line in c.lines] for c in campaigns]})
        if arguments.json:
            pathlib.Path(arguments.json).write_text(json.dumps(answer))


def show(kernel, keys, campaigns, choices):
    agree = total = peer_agree = peer_total = 0
    sizes, distinct, floors, processes, kept_out = [], [], [], [], 0
    print(f"\n{kernel.name}: {len(campaigns)} campaigns of {len(keys)} keys, {statistics.median(c.seconds for c in campaigns):.1f} s each")
    for i, key in enumerate(keys):
        lines = [c.lines[i] for c in campaigns if "winner" in c.lines[i]]
        winners = [line["winner"]["config"] for line in lines]
        sets = [set(line["verdict"]["equivalence_set"]) for line in lines]
        sizes += [len(s) for s in sets]
        floors += [line["verdict"]["regret_bound"] for line in lines]
        processes += [line["verdict"]["processes"] for line in lines]
        finalists = [{f["config"] for f in line["verdict"]["finalists"]} for line in lines]
        kept_out += sum(w in finalists[b] and w not in s for a, w in enumerate(winners) for b, s in enumerate(sets) if a != b)
        distinct.append(len(set(winners)))
        pairs = [(w, s) for a, w in enumerate(winners) for b, s in enumerate(sets) if a != b]
        inside = sum(w in s for w, s in pairs)
        agree, total = agree + inside, total + len(pairs)
        theirs = [kernel.ordinal(line["config"]) for line in choices if line["key"] == key]
        note = ""
        if theirs:
            inside_sets = sum(choice in s for choice in theirs for s in sets)
            peer_agree, peer_total = peer_agree + inside_sets, peer_total + len(theirs) * len(sets)
            note = f"; the peer chose {len(set(theirs))} different in {len(theirs)} runs, in our sets {inside_sets} of {len(theirs) * len(sets)}"
        print(f"{tuning.key_text(key):44} {len(set(winners))} winners, {inside} of {len(pairs)} pairs inside{note}")
    low, high = tuning.wilson(agree, total)
    print(f"winner inside the stored equivalence set: {agree} of {total} = {100 * agree / max(1, total):.2f} % "
          f"({100 * low:.2f} to {100 * high:.2f}); sets: median {statistics.median(sizes)}, largest {max(sizes)}; different "
          f"winners a key: mean {statistics.mean(distinct):.2f}; noise floor (regret bounds): median "
          f"{100 * statistics.median(floors):.2f} %, worst {100 * max(floors):.2f} %")
    print(f"of the {total - agree} outside {kept_out} were finalists that their interval kept out; {sum(p > 3 for p in processes)} of "
          f"{len(processes)} verdicts took more than 3 processes")
    if peer_total:
        low, high = tuning.wilson(peer_agree, peer_total)
        print(f"the peer's choices inside those sets: {peer_agree} of {peer_total} = {100 * peer_agree / peer_total:.2f} % "
              f"({100 * low:.2f} to {100 * high:.2f})")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
