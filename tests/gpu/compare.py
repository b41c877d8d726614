#!/usr/bin/env python3
"""Reads what programs printed as JSON and says whether it is as it should be: one line, and exit status 1 when not.

    compare.py facts PROBE.json BACKEND      prints "GPUS ARCH" of the devices of cuda or hip
    compare.py absent PROBE.json             prints why back ends have no device
    compare.py devices PROBE.json NAME…      these devices are there
    compare.py tuned TUNED.json              a winner, and no config that failed
    compare.py correct TUNED.json            no config failed; nothing is said of times
    compare.py planted TUNED.json CONFIG     without a reference this config alone disagrees with the default
    compare.py mark TUNED.json NOTE          writes the note into the document
    compare.py same A.json B.json AGAIN.json the same outcome of every config, and medians within noise: the noise is what
                                             separates A from AGAIN, which is A once more
    compare.py isolated TUNED.json SPACE     each bad config of gpu_misbehaving cost itself and nothing else
    compare.py spread URL JOB N              a job's measurements come from N devices (token in $WAVETUNE_TOKEN)
"""

import json
import math
import os
import statistics
import sys
import urllib.request

NOISE_MIN = 0.03  # medians of one kernel on one GPU, minutes apart, are that far from each other at times
EXPECTED = {"good": {"correct"}, "slow": {"correct"}, "wrong": {"correctness"}, "one_wrong": {"correctness"},
            "unwritten": {"correctness"}, "beyond_end": {"correctness", "runtime"},
            "before_begin": {"correctness", "runtime"}, "fault": {"runtime"}, "hang": {"timeout"},
            "no_compile": {"compile"}, "too_much_lds": {"constraints"}, "too_many_threads": {"constraints"}}


def load(path):
    with open(path) as file:
        return json.load(file)


def fail(text):
    print(text)
    sys.exit(1)


def facts(path, backend):
    devices = [d for d in load(path)["devices"] if d["backend"] == backend]
    print(len(devices), devices[0]["environment"]["arch"] if devices else "none")


def absent(path):
    for back_end in load(path).get("absent") or []:
        print(f"{back_end['backend']}: {back_end['reason']}")


def mark(path, note):
    result = load(path)
    with open(path, "w") as file:
        json.dump({"note": note, **result}, file)
    print(f"{result['name']} for {result['key']}: {result['configs']} configs; emulated")


def devices(path, *names):
    found = {d["device"]: d for d in load(path)["devices"]}
    missing = [name for name in names if name not in found]
    if missing:
        fail(f"no {', '.join(missing)}; there is {', '.join(found)}")
    print("; ".join(f"{name}: {found[name]['name']}, {found[name]['environment']}" for name in names))


def tuned(path):
    result = load(path)
    if result["failed"]:
        fail(f"{result['name']} on {result['device']}: {result['outcomes']}, such as {result['examples']}")
    print(f"{result['name']} on {result['device']}: {result['configs']} configs correct, winner "
          f"{result['winner']['config_values']}, {1 / result['verdict']['baseline_ratio']:.2f} times as fast as the default")


def correct(path):
    result = load(path)
    if result["failed"]:
        fail(f"{result['name']} on {result['device']}: {result['outcomes']}, such as {result['examples']}")
    print(f"{result['name']} on {result['device']}: {result['configs']} configs correct")


def planted(path, config):
    result = load(path)
    text = f"{result['name']} on {result['device']}: {result['outcomes']}, {result.get('agreement')}"
    if result["failed"] != {"correctness": [int(config)]} or result["agreement"].get("disagrees") != 1:
        fail(f"{text}, such as {result['examples']}")
    print(f"{text}; {result['examples']['correctness']}")


def medians(result):
    """{config: microseconds} of the finalists and the baseline."""
    times = {f["config"]: f["median_us"] for f in result["verdict"]["finalists"]}
    times.setdefault(result["baseline"], result["verdict"]["baseline_us"])
    return times


def ratios(left, right):
    left, right = medians(left), medians(right)
    return {config: right[config] / left[config] for config in sorted(left.keys() & right.keys())}


def same(path, other_path, again_path):
    one, other, again = load(path), load(other_path), load(again_path)
    for result in (other, again):
        if (one["failed"], one["configs"]) != (result["failed"], result["configs"]):
            fail(f"{one['name']}: outcomes differ: {one['device']} {one['failed']}, {result['device']} {result['failed']}")
    between, noise = ratios(one, other), ratios(one, again)
    middle = statistics.median(between.values())
    # Twice what the finalist that differs most differs by when the same device measures it once more.
    allowed = max(NOISE_MIN, *(2 * abs(math.log(r)) for r in noise.values()))
    text = (f"{one['name']}: {one['configs']} configs with equal outcomes {one['outcomes']}; median of "
            f"{other['device']} / {one['device']} over {len(between)} finalists {middle:.4f} "
            f"({min(between.values()):.4f} to {max(between.values()):.4f}); {one['device']} against itself "
            f"{statistics.median(noise.values()):.4f} ({min(noise.values()):.4f} to {max(noise.values()):.4f})")
    if abs(math.log(middle)) > allowed:
        fail(f"{text}: beyond noise")
    print(text)


def isolated(path, space_path):
    result, space = load(path), load(space_path)
    modes, turns = space["parameters"]["MODE"], space["parameters"]["TURN"]
    outcome = {config: name for name, configs in result["failed"].items() for config in configs}
    wrong = []
    for config in range(len(turns) * len(modes)):
        mode, got = modes[config % len(modes)], outcome.get(config, "correct")
        if got not in EXPECTED[mode]:
            wrong.append(f"config {config} ({mode}) is {got}")
    if wrong or result["configs"] != len(turns) * len(modes):
        fail(f"on {result['device']}: {'; '.join(wrong)}; {result['examples']}")
    print(f"on {result['device']}: {result['configs']} configs, {result['outcomes']}, each as expected")


def spread(url, job, n):
    measurements, after = [], ""
    while True:
        request = urllib.request.Request(f"{url}/v1/jobs/{job}/measurements?limit=1000{after}",
                                         headers={"Authorization": f"Bearer {os.environ['WAVETUNE_TOKEN']}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            page = json.load(answer)
        measurements += page["items"]
        if not page["next"]:
            break
        after = f"&after={page['next']}"
    seen = {}
    for m in measurements:
        leases, configs, outcomes, us = seen.setdefault(m["device"], (set(), set(), set(), [0]))
        leases.add(m["lease"])
        configs.add(m["config"])
        outcomes.add(m["outcome"])
        us[0] += m["device_us"] or 0
    text = "; ".join(f"{device}: {len(leases)} leases, {len(configs)} configs, {us[0] / 1e6:.1f} s"
                     for device, (leases, configs, _, us) in sorted(seen.items()))
    failed = {o for _, _, outcomes, _ in seen.values() for o in outcomes} - {"correct"}
    if len(seen) != int(n) or failed:
        fail(f"wanted {n} devices and correct configs only: {text} {sorted(failed)}")
    print(text)


if __name__ == "__main__":
    commands = {"facts": facts, "absent": absent, "devices": devices, "tuned": tuned, "correct": correct, "mark": mark,
                "same": same, "isolated": isolated, "planted": planted, "spread": spread}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
