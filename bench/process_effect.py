"""Do the times of whole processes differ on this machine? Computed from finals of several processes.

    wavetune-agent tune DIR --keys FILE --processes 8 --samples SAMPLES
    bench/process_effect.py SAMPLES…

For every finalist within 3 % of its key's best: the standard deviation over processes of its distance to the best (the median
over rounds of the logarithm of their quotient), and the value that the rounds alone would give (the error of such a median:
McKean, Schrader 1984, as common/verdict/verdict_interval.h has it). Where the first is no larger, more rounds help as much as
more processes; where it is larger, only processes do. Printed: deciles of both, and the effect of a process: the difference
of their mean squares.
"""

import argparse
import collections
import json
import math
import statistics

Z = 2.5758
NEAR = math.log(1.03)


def median_error(values):
    values = sorted(values)
    low = max(1, round((len(values) + 1) / 2 - Z * math.sqrt(len(values) / 4)))
    return (values[-low] - values[low - 1]) / (2 * Z)


def finals(path):
    """Of each key and process: a config's samples, in us."""
    keys = collections.defaultdict(lambda: collections.defaultdict(dict))
    with open(path) as file:
        for line in map(json.loads, file):
            if line["stage"] == "final" and line["outcome"] == "correct":
                keys[json.dumps(line["key"])][line["process"]][line["config"]] = (line["samples_us"], line["baseline_us"])
    return keys.values()


def distances(processes):
    """(between, of rounds) of each finalist that is near the best of one key."""
    common = set.intersection(*(set(process) for process in processes.values()))
    means = {config: statistics.mean(statistics.median(math.log(a / b) for a, b in zip(*process[config]))
                                     for process in processes.values()) for config in common}
    best = min(means, key=means.get, default=None)
    for config in common - {best}:
        if means[config] - means[best] > NEAR:
            continue
        logs = [[math.log(a / b) for a, b in zip(process[config][0], process[best][0])] for process in processes.values()]
        yield (statistics.stdev(statistics.median(x) for x in logs),
               math.sqrt(statistics.mean(median_error(x) ** 2 for x in logs)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="+")
    for path in parser.parse_args().samples:
        rows = [row for processes in finals(path) if len(processes) > 2 for row in distances(processes)]
        if len(rows) < 2:
            print(f"{path}: {len(rows)} finalists near a best in 3 or more processes; it takes 2, of tune --samples --processes 8")
            continue
        print(f"{path}: {len(rows)} finalists within 3 % of a best")
        for name, values in zip(("between processes", "of the rounds"), zip(*rows)):
            print(f"  {name:18} " + " ".join(f"{100 * x:.2f}" for x in statistics.quantiles(values, n=10)) + " %, deciles")
        left = statistics.mean(between ** 2 - rounds ** 2 for between, rounds in rows)
        print(f"  effect of a process: {100 * math.sqrt(max(0, left)):.2f} %")


if __name__ == "__main__":
    main()
