"""What confining costs: a kernel's times, a worker's start, and which configs a tuning chooses, with the sandbox and without.

    bench/sandbox_cost.py [--device cuda0] [--pairs 6] [--starts 20] [--tunes 10] [--json FILE]

Without means WAVETUNE_SANDBOX=none. The two ways alternate, and so does which one is first. (a) Processes in pairs, one of
each way: the samples of one config, compared round by round, with the verdict of common/verdict: its SAME is an interval
within 2 %. (b) From the start of a worker to the answer that its device has passed its sentinel, by which time it is
completely confined. (c) Tunings of a matrix product: what each way chose, and the winner's time. On a GPU (cuda, hip) the
kernels are in hip, else in C. Programs are those of $WAVETUNE_BUILD, else of build/release or build/dev.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import tuning

WAYS = ("sandbox", "none")
# (kernel, version, key) of (a); the same of (c) with the parameters that it varies, the others being the default's.
SAMPLED = {"c": ("matmul", "c", "M=256,N=256,K=256"), "hip": ("softmax", "hip_online", "rows=2048,columns=4096")}
TUNED = {"c": ("matmul", "c", "M=128,N=128,K=128", ("MICRO_M", "MICRO_N")),
         "hip": ("matmul", "hip", "M=1024,N=1024,K=1024", ("BLOCK_M", "BLOCK_N", "BLOCK_K", "STAGES"))}


def programs():
    given = os.environ.get("WAVETUNE_BUILD")
    folders = [pathlib.Path(given)] if given else [tuning.ROOT / "build/release", tuning.ROOT / "build/dev"]
    return next(folder for folder in folders if (folder / "wavetune-agent").exists())


def environment(way):
    kept = {name: value for name, value in os.environ.items() if name != "WAVETUNE_SANDBOX"}
    return kept if way == "sandbox" else {**kept, "WAVETUNE_SANDBOX": "none"}


def alternating(n):
    """n times both ways; the first one alternates."""
    for i in range(n):
        for way in (WAYS if i % 2 == 0 else WAYS[::-1]):
            yield i, way


def tune(place, key, way, scratch, *options):
    command = [programs() / "wavetune-agent", "tune", place, "--key", key, "--state", f"{scratch}/state", "--json", *options]
    done = subprocess.run([str(word) for word in command], env=environment(way), capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout)


def copy_of(kernel, version, scratch, varied):
    """DIR:VERSION with a space in which only the parameters in `varied` vary."""
    place = tuning.Kernel(kernel, version, [], [])
    manifest = json.loads((place.place / "kernel.json").read_text())
    space = json.loads((place.place / manifest["versions"][version]["space"]).read_text())
    space["parameters"] = {name: values if name in varied else [space["default"][name]]
                           for name, values in space["parameters"].items()}
    place.space = space
    return place.folder(tempfile.mkdtemp(dir=scratch))  # (a) and (c) may have the same kernel


def compare_samples(language, device, pairs, scratch):
    kernel, version, key = SAMPLED[language]
    place = copy_of(kernel, version, scratch, ())
    samples = {way: {} for way in WAYS}
    tune(place, key, WAYS[0], scratch, "--device", device)  # compiles
    for i, way in alternating(pairs):
        path = f"{scratch}/samples-{i}-{way}"
        tune(place, key, way, scratch, "--device", device, "--only", "0", "--regime", "warm", "--exhaustive", "100",
             "--samples", path)
        for line in map(json.loads, open(path)):
            if line["outcome"] == "correct":
                samples[way][i, line["process"]] = line["samples_us"]
    common = sorted(samples["sandbox"].keys() & samples["none"].keys())
    lines = "".join(json.dumps({"process": n, "samples_us": samples["sandbox"][pair], "baseline_us": samples["none"][pair]}) + "\n"
                    for n, pair in enumerate(common))
    verdict = programs() / "bench/sandbox_verdict"
    verdict = verdict if verdict.exists() else programs() / "sandbox_verdict"
    return json.loads(subprocess.run([str(verdict)], input=lines, capture_output=True, text=True, check=True).stdout)


def worker_start(device, way):
    """Milliseconds; the worker is a child with a socket as descriptor 3 and a page as descriptor 4 (agent/worker/worker.h)."""
    ours, theirs = socket.socketpair()
    page = os.memfd_create("page")
    os.ftruncate(page, 4096)

    def arrange():
        os.dup2(theirs.fileno(), 100)  # out of the way first: either may be 3 or 4
        os.dup2(page, 101)
        os.dup2(100, 3)
        os.dup2(101, 4)
        os.closerange(5, 102)

    begin = time.perf_counter()
    with subprocess.Popen([str(programs() / "wavetune-agent"), "worker"], env=environment(way), preexec_fn=arrange, close_fds=False,
                          stderr=subprocess.DEVNULL) as child:
        theirs.close()
        os.close(page)
        ours.sendall(json.dumps({"do": "sentinel", "device": device}).encode() + b"\n")
        answer = ours.makefile().readline()
        taken = time.perf_counter() - begin
        ours.close()
        child.wait(60)
    if not json.loads(answer).get("passed"):
        raise SystemExit(f"{device} does not pass its sentinel: {answer}")
    return 1000 * taken


def compare_starts(device, starts):
    taken = {way: [] for way in WAYS}
    worker_start(device, WAYS[0])
    for _, way in alternating(starts):
        taken[way].append(worker_start(device, way))
    return taken


def compare_tunes(language, device, tunes, scratch):
    kernel, version, key, varied = TUNED[language]
    place = copy_of(kernel, version, scratch, varied)
    tune(place, key, WAYS[0], scratch, "--device", device)  # compiles
    chosen = {way: [] for way in WAYS}
    for i, way in alternating(tunes):
        begin = time.perf_counter()
        verdict = tune(place, key, way, scratch, "--device", device, "--seed", str(i + 1))["verdict"]
        chosen[way].append({"winner": verdict["winner"], "winner_us": verdict["winner_us"], "set": verdict["equivalence_set"],
                            "seconds": time.perf_counter() - begin})
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu0")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--tunes", type=int, default=10)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    language = "c" if arguments.device.startswith("cpu") else "hip"
    with tempfile.TemporaryDirectory(prefix="wt-sandbox-") as scratch:
        verdict = compare_samples(language, arguments.device, arguments.pairs, scratch)
        print(f"(a) {SAMPLED[language][0]}:{SAMPLED[language][1]} {SAMPLED[language][2]}: {verdict['verdict']}; with the sandbox / "
              f"without {verdict['baseline_ratio']:.4f} ({verdict['baseline_lower']:.4f} to {verdict['baseline_upper']:.4f}), "
              f"{verdict['processes']} pairs of processes, {verdict['samples']} of samples", flush=True)
        starts = compare_starts(arguments.device, arguments.starts)
        medians = {way: statistics.median(starts[way]) for way in WAYS}
        differences = sorted(a - b for a, b in zip(*(starts[way] for way in WAYS)))
        quarter = len(differences) // 4
        print(f"(b) a worker's start: {medians['sandbox']:.1f} ms with, {medians['none']:.1f} ms without; difference of neighbours "
              f"{statistics.median(differences):+.1f} ms (quartiles {differences[quarter]:+.1f} to {differences[-1 - quarter]:+.1f})",
              flush=True)
        tunes = compare_tunes(language, arguments.device, arguments.tunes, scratch)
        print(f"(c) {TUNED[language][0]}:{TUNED[language][1]} {TUNED[language][2]}, {arguments.tunes} tunings each way")
        sets = [set(one["set"]) for way in WAYS for one in tunes[way]]
        for way in WAYS:
            winners = [one["winner"] for one in tunes[way]]
            print(f"    {way:8} winners " + ", ".join(f"{w} x {winners.count(w)}" for w in sorted(set(winners))) +
                  f"; median time {statistics.median(one['winner_us'] for one in tunes[way]):.2f} us; "
                  f"{statistics.median(one['seconds'] for one in tunes[way]):.1f} s a tuning")
        agreed = sum(one["winner"] in other for way, rest in (WAYS, WAYS[::-1]) for one in tunes[way]
                     for other in [set().union(*(set(t["set"]) for t in tunes[rest]))])
        print(f"    {agreed} of {len(sets)} winners are in an equivalence set of the other way")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps({"samples": verdict, "starts_ms": starts, "tunes": tunes}))


if __name__ == "__main__":
    main()
