"""The ratio of the steps that processes took in turns with two sides' choices (unmodified_model.py --turns), with its interval."""

import math
import random
import statistics


def log_ratio(turns):
    """Of a process: the mean over its pairs of blocks, which lie beside each other."""
    return statistics.mean(math.log(statistics.median(served) / statistics.median(own))
                           for own, served in zip(turns["own"], turns["served"]))


def interval(logs, n=10000):
    """The ratio of processes' paired log ratios, and its bootstrap interval of 95 % over the processes."""
    draw = random.Random(7)
    means = sorted(statistics.mean(draw.choices(logs, k=len(logs))) for _ in range(n))
    return [math.exp(one) for one in (statistics.mean(logs), means[n // 40], means[-n // 40])]


def print_ratio(model, reports, own, steps):
    """`reports`: what the processes printed, at least one; `own`: words for the side that the ratio is over."""
    logs = [log_ratio(report["turns"]) for report in reports]
    ratio, low, high = interval(logs)
    configs = reports[0]["configs"]
    print(f"ratio: {model}: steps with what the server gave {ratio:.4f} ({low:.4f} to {high:.4f}) x those with {own}, in "
          f"{len(reports)} processes of {steps} steps each in turns; single processes {math.exp(min(logs)):.4f} to "
          f"{math.exp(max(logs)):.4f}; {statistics.median(ms for report in reports for block in report['turns']['own'] for ms in block):.2f} ms",
          flush=True)
    print(f"  configs: {len(configs['differ'])} of {configs['keys']} keys differ {configs['differ']}, {configs['only served']} only "
          "served" + ("" if configs["differ"] else ": the ratio is the wheel's cost in a launch and the noise"), flush=True)
