#!/usr/bin/env python3
"""The loop of captured kernels on a GPU, with flash-linear-attention as it is: programs are recorded, their kernels built on
this machine's cores, tuned by an agent, released with a signature, and restored in fresh processes with empty folders.

    bench/captured_gpu.py [--postgres-bin DIR] [--wheels DIR] [--models NAME,…] [--shapes N] [--seconds S] [--builders N]
                          [--budget S] [--skip-own] [--processes N] [--program packages] [--json FILE]

The steps, each of all models before the next:
  capture   the program with WAVETUNE_CAPTURE=source and the first config of each function: what recording added
  build     N builders at once lease what was recorded and compile every config
  own       the program tunes by itself, with the code of the builders: its choices
  tune      an agent measures every key that was built; what is not done after S seconds in all is left
  release   the winners, signed with one key
  restored  the program in an empty folder, with code that this key signed and no shared namespace
  steps     N processes take later steps in turns with the program's own choices and with the release's (unmodified_model.py --turns)
Then a table of all autotuned launches, in which each refusal counts as not restored; of all functions with several configs that the
program had imported before its first launch, how many were launched and restored; and the gain: the time of the program's own choice over that of the winner, both of the
agent's measurements of that key.

With `--program packages` the models are programs of packages_model.py (`--list` of that file).

The wheels of the packages lie in DIR where they are not installed. Programs are those of
$WAVETUNE_BUILD. Nothing but loopback is used. The JSON file is written after each step.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("WAVETUNE_BUILD", ROOT / "build/release"))
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/python")]
import operating  # noqa: E402
from turns import print_ratio  # noqa: E402
from wavetune.client import Client  # noqa: E402

MODELS = "DeltaNet,GatedLinearAttention,RWKV7Attention,GatedDeltaNet"
FORWARD = ("GatedDeltaNet",)  # fla refuses its backward under Triton 3.4 to 3.7 on Hopper
PACKAGES = ",".join(f"{name}.*" for name in ("fla", "gemlite", "flag_gems", "liger_kernel", "late_interaction_kernels",
                                             "mlstm_kernels", "mamba_ssm", "torchao"))
# Triton's cache of all builders is kept, so that the step "own" compiles nothing: the confined process leaves it in its scratch
# folder, and its groups name their files by that path.
BUILDER = """
import pathlib, shutil, sys
from wavetune._captured import confined
kept, run = pathlib.Path(sys.argv[1]), confined._run
INNER = "import sys, triton; triton.knobs.cache.dir = sys.argv[1]; from wavetune._captured.confined import main; sys.exit(main())"

def keep(launcher, scratch, processes, seconds, argv):
    made = scratch / "cache"
    if argv[-1] == confined.__name__:
        argv = [sys.executable, "-c", INNER, str(made)]
    done = run(launcher, scratch, processes, seconds, argv)
    for group in made.glob("*/__grp__*.json"):
        group.write_text(group.read_text().replace(str(made), str(kept)))
    if made.is_dir():
        shutil.copytree(made, kept, dirs_exist_ok=True)
    return done

confined._run = keep
sys.argv = ["wavetune", *sys.argv[2:]]
from wavetune.__main__ import main
sys.exit(main())
"""


def wavetune(server, *arguments):
    own = {**os.environ, "WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": server.admin} if server else dict(os.environ)
    done = subprocess.run([str(BUILD / "wavetune"), *map(str, arguments)], env=own, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"wavetune {' '.join(map(str, arguments))}: {done.stderr[-2000:]}")
    return done.stdout


class Server:
    """`wavetune-server dev` that takes entries of one key, and tokens for containers and builders."""

    def __init__(self, folder, postgres_bin):
        self.key = folder.parent / "publisher.key"
        wavetune(None, "key", "new", self.key)
        command = [BUILD / "wavetune-server", "dev", "--folder", folder, "--port", "0", "--json", "--publisher-key",
                   f"{self.key}.pub", *(["--postgres-bin", postgres_bin] if postgres_bin else [])]
        if os.geteuid() == 0:
            is_there = subprocess.run(["id", "postgres"], capture_output=True).returncode == 0
            command += ["--user", "postgres" if is_there else "nobody"]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "WAVETUNE_MIGRATIONS": str(ROOT / "migrations")})
        ready = json.loads(self.process.stdout.readline() or sys.exit("the server did not start"))
        self.url, self.admin = ready["url"], ready["token"]
        self.client = Client(self.url, self.admin)
        self.container, self.builder = (self.client.request("POST", "/v1/tokens", {"name": name, "role": role})["token"]
                                        for name, role in (("fleet", "reader,demand"), ("builder", "builder")))

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


class Run:
    """`reports`: what the steps found, which is also what the JSON file has."""

    def __init__(self, arguments, scratch, paths, server):
        self.arguments, self.scratch, self.server = arguments, scratch, server
        self.models = arguments.models.split(",")
        self.path = os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.started, self.reports = time.monotonic(), {}

    def left(self):
        return self.arguments.seconds - (time.monotonic() - self.started)

    def report(self, step, **found):
        self.reports[step] = {**self.reports.get(step, {}), **found}
        if self.arguments.json:
            self.arguments.json.write_text(json.dumps(self.reports, default=str))

    def begin(self, step, model, cache=None, **variables):
        """A process of the model that imports and then waits for `go`."""
        folder = self.scratch / f"{model}-{step}"
        folder.mkdir()
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
        own |= {"TRITON_CACHE_DIR": str(cache or folder / "cache"), "PYTHONPATH": self.path, **variables}
        command = [sys.executable, ROOT / "bench/captured_model.py", folder / "launches.json",
                   ROOT / f"bench/{self.arguments.program}_model.py", model, "--go", folder / "go"]
        if self.arguments.program == "unmodified":
            command += ["--steps", str(self.arguments.steps)]
            command += ["--forward"] if model in FORWARD else []
        command += ["--shapes", str(self.arguments.shapes)] if self.arguments.shapes else []
        process = subprocess.Popen([str(word) for word in command], env=own, stdout=open(folder / "out", "w"),
                                   stderr=open(folder / "err", "w"))
        return model, folder, process

    def end(self, step, model, folder, process, seconds):
        """What it reported, with its launches; None where it failed."""
        (folder / "go").touch()
        try:
            status = process.wait(max(5.0, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        if status != 0 or not (folder / "launches.json").exists():
            print(f"  {model} {step}: status {status}: {(folder / 'err').read_text()[-1500:]}", flush=True)
            return None
        found = json.loads((folder / "out").read_text().splitlines()[-1])
        if found.get("skipped"):
            print(f"  {model} {step}: {found['skipped']}", flush=True)
            return None
        failed = {name: case["why"] for name, case in found.get("cases", {}).items() if case["why"]}
        for name, why in failed.items():
            print(f"  {model} {step}: {name} failed: {why}", flush=True)
        found |= json.loads((folder / "launches.json").read_text())
        found["log"] = [line for line in (folder / "err").read_text().splitlines() if "wavetune" in line][-5:]
        return found

    def of_server(self, **variables):
        return {"WAVETUNE_URL": self.server.url, "WAVETUNE_TOKEN": self.server.container, "WAVETUNE_LOG": "stderr", **variables}


def capture(run):
    """All models at once."""
    variables = run.of_server(WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_FUNCTIONS=PACKAGES, WAVETUNE_ON_MISS="first")
    processes = [run.begin("capture", model, **variables) for model in run.models]
    for _, folder, _ in processes:
        (folder / "go").touch()
    for model, folder, process in processes:
        found = run.end("capture", model, folder, process, run.left())
        if found is None:
            continue
        counters = found["counters"]
        print(f"  {model}: {counters['captures']} launches recorded in {counters['capture_ms'] / 1000:.3f} s "
              f"({counters['capture_ms'] / max(1, counters['captures']):.2f} ms each), {counters['captures_lost']} lost; first "
              f"steps {', '.join(f'{s:.1f}' for s in found['first_s'])} s", flush=True)
        run.report("capture", **{model: found})


def build(run):
    started, cores = time.monotonic(), os.cpu_count()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
    own |= {"PYTHONPATH": run.path, "WAVETUNE_TOKEN": run.server.builder, "WAVETUNE_URL": run.server.url,
            "PATH": f"{BUILD}:{os.environ['PATH']}"}
    is_confined = subprocess.run([BUILD / "wavetune-agent", "confine", str(1 << 32), "64", "10", run.scratch, "--", "/bin/true"],
                                 stderr=subprocess.DEVNULL).returncode == 0
    arch = run.arch = next(launch["arch"] for launch in operating.launches(run.server.client))
    n = run.arguments.builders or max(1, cores // 2)
    command = [sys.executable, "-c", BUILDER, run.scratch / "kept", "build", "--url", run.server.url, "--arch", arch, "--json",
               "-j", str(max(2, 2 * cores // n)), *([] if is_confined else ["--no-sandbox"])]
    processes = [subprocess.Popen([str(word) for word in command], env=own, stdout=subprocess.PIPE, text=True,
                                  stderr=open(run.scratch / f"builder-{i}", "w")) for i in range(n)]
    total = collections.Counter()
    for i, process in enumerate(processes):
        out, _ = process.communicate(timeout=max(10.0, run.left()))
        if process.returncode:
            print(f"  builder {i}: {(run.scratch / f'builder-{i}').read_text()[-1500:]}", flush=True)
        else:
            total.update({name: count for name, count in json.loads(out).items() if name != "seconds"})
    launches = operating.launches(run.server.client)
    seconds = time.monotonic() - started
    cpu = os.times()
    reasons = collections.Counter(launch["refused"] for launch in launches if launch.get("refused"))
    print(f"  {len(launches)} launches of {len({one['function'] for one in launches})} functions for {arch}: {dict(total)} in "
          f"{seconds:.1f} s by {n} builders on {cores} cores of the GPU's machine, "
          f"{cpu.children_user + cpu.children_system:.0f} s of CPU so far{'' if is_confined else '; without the sandbox, which this machine lacks'}", flush=True)
    for why, count in reasons.most_common():
        print(f"    {count} refused: {why}")
    members = ("function", "key", "state", "refused", "kernel", "build")
    run.report("build", seconds=seconds, cores=cores, builders=n, arch=arch, **total,
               launches=[{name: launch.get(name) for name in members} for launch in launches])


def own(run):
    """One after the other, for they measure."""
    processes = [run.begin("own", model, cache=run.scratch / "kept", TRITON_DISABLE_LINE_INFO="1") for model in run.models]
    for process in processes:
        found = run.end("own", *process, run.left() / 2)
        if found is None:
            continue
        print(f"  {found['model']}: {found['benchmarked']} benchmarks in {found['benchmark_s']:.1f} s, {found['compiled_n']} "
              f"compiles that no builder had done; first steps {', '.join(f'{s:.1f}' for s in found['first_s'])} s", flush=True)
        run.report("own", **{found["model"]: found})


def agent_start(run):
    command = [BUILD / "wavetune-agent", "run", "--url", run.server.url, "--state", run.scratch / "agent", "--name", "gpu",
               "--python", sys.executable, *run.arguments.agent.split()]
    return subprocess.Popen([str(word) for word in command], env={**os.environ, "WAVETUNE_TOKEN": run.server.admin},
                            stdout=subprocess.DEVNULL, stderr=open(run.scratch / "agent.log", "w"))


def environment_wait(run):
    for _ in range(600):
        found = list(run.server.client.list("/v1/environments"))
        if found:
            return found[0]["environment"]
        time.sleep(0.1)
    raise SystemExit(f"the agent did not enrol: {(run.scratch / 'agent.log').read_text()[-2000:]}")


def tune(run):
    """Until all is done or the time is short; what is left is cancelled."""
    started, client, agent = time.monotonic(), run.server.client, agent_start(run)
    try:
        stated = run.environment = environment_wait(run)
        # The kernels of the first model first.
        order = {row["function"]: run.models.index(model) for model in reversed(run.models)
                 for row in run.reports["capture"].get(model, {"launches": []})["launches"]}
        budget = {"budget": {"device_seconds": run.arguments.budget}} if run.arguments.budget else {}
        posted = operating.jobs(client, {name: stated[name] for name in ("gpu", "arch")}, **budget,
                                priority=lambda name: 100 - order.get(name, 50))
        names = {job["job"]: name for name, job in posted}
        print(f"  {len(posted)} jobs, {sum(job['configs'] for _, job in posted)} configs", flush=True)
        waiting = set(names)
        while waiting and run.left() > run.arguments.reserve:
            waiting -= {job["job"] for state in ("done", "failed", "cancelled") for job in client.jobs(state=state)}
            time.sleep(1)
        for job in waiting:
            client.cancel(job)
        done = [client.job(job) for job in names]
    finally:
        agent.terminate()
        try:
            agent.wait(30)
        except subprocess.TimeoutExpired:
            agent.kill()
    states = collections.Counter(job["state"] for job in done)
    device_s = sum(job["spent_device_seconds"] for job in done)
    outcomes = collections.Counter()
    for job in done:
        outcomes.update(job["outcomes"])
    seconds = time.monotonic() - started
    print(f"  {dict(states)} in {seconds:.0f} s, {device_s:.0f} device seconds; outcomes {dict(outcomes)}", flush=True)
    for why, count in collections.Counter(job["reason"] for job in done if job.get("reason")).most_common(8):
        print(f"    {count}: {why}")
    members = ("job", "kernel", "key", "state", "reason", "outcomes", "spent_device_seconds", "winner", "configs")
    run.jobs = [{**{name: job.get(name) for name in members}, "function": names[job["job"]], "space": job["space"]["configs"],
                 "ratios": ratios(client, job) if job["state"] == "done" else {}} for job in done]
    run.report("tune", seconds=seconds, states=states, device_s=device_s, jobs=run.jobs, environment=stated,
               log=(run.scratch / "agent.log").read_text()[-4000:])


def ratios(client, job):
    """Of each config that was measured, its time over the default's."""
    found = {}
    for row in client.measurements(job["job"]):
        if row["outcome"] == "correct" and row.get("samples_us") and row.get("baseline_us"):
            ratio = statistics.median(row["samples_us"]) / statistics.median(row["baseline_us"])
            found.setdefault(row["config"], []).append(ratio)
    return {config: statistics.median(values) for config, values in found.items()}


def release(run):
    jobs = list(run.server.client.jobs(state="done"))
    if not jobs:
        raise SystemExit("nothing was tuned")
    environment = json.dumps(jobs[0]["environment"])
    made = json.loads(wavetune(run.server, "publish", "--environment", environment, "--json"))
    def place(one):
        return one["kernel"], json.dumps(one["key"], sort_keys=True)

    first = {place(job): job["space"][0] for job in run.jobs}
    pins = [{"kernel": item["kernel"], "key": item["key"], "config": first[place(item)]} for item in made["skipped"]
            if str(item.get("reason")).startswith("ambiguous")]
    if pins:  # neither faster nor the same beyond doubt: the program's first config
        (run.scratch / "pins.json").write_text(json.dumps(pins))
        print(f"  pinned to their first config: {len(pins)} undecided keys")
        made = json.loads(wavetune(run.server, "publish", "--environment", environment, "--json", "--pins",
                                   run.scratch / "pins.json"))
    wavetune(run.server, "promote", made["release"], "stable", "--sign-key", run.server.key)
    print(f"  {made['release'][:19]}: {len(made['included'])} choices, signed; {len(made['skipped'])} left out", flush=True)
    for why, count in collections.Counter(item.get("reason") for item in made["skipped"]).most_common(5):
        print(f"    {count}: {why}")
    run.report("release", **made)


def restored(run):
    """Their imports at once, and then one after the other on the GPU."""
    variables = run.of_server(WAVETUNE_TRUSTED_KEYS=f"{run.server.key}.pub", WAVETUNE_ON_MISS="first")
    processes = [run.begin("restored", model, **variables) for model in run.models]
    for process in processes:
        found = run.end("restored", *process, max(30.0, run.left()))
        if found is None:
            continue
        counters = found["counters"]
        print(f"  {found['model']}: first steps {', '.join(f'{s:.2f}' for s in found['first_s'])} s; {found['benchmarked']} "
              f"benchmarks, {found['compiled_n']} compiles {sorted(set(filter(None, found['compiled'])))}; hits {counters['hits']}, "
              f"misses {counters['misses']}, groups {counters['groups']}, refused {counters['refused']}; "
              f"{' | '.join(found['log'])[-600:]}", flush=True)
        run.report("restored", **{found["model"]: found})


def steps(run):
    """The folders of the step `own` have its code and choices. Imports at once, and then one after the other on the GPU."""
    for model in run.reports.get("own", {}) if run.arguments.processes else ():
        begun, reports = [], []
        for i in range(run.arguments.processes):
            folder = run.scratch / f"{model}-turns-{i}"
            folder.mkdir()
            own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
            own |= run.of_server(WAVETUNE_TRUSTED_KEYS=f"{run.server.key}.pub", PYTHONPATH=run.path, TRITON_DISABLE_LINE_INFO="1",
                                 TRITON_CACHE_DIR=str(run.scratch / "kept"))
            command = [sys.executable, ROOT / "bench/unmodified_model.py", model, "--steps", "200", "--shapes", "1", "--turns",
                       "--go", folder / "go", *(["--forward"] if model in FORWARD else [])]
            begun.append((folder, subprocess.Popen([str(word) for word in command], env=own, stdout=subprocess.PIPE, text=True,
                                                   stderr=open(folder / "err", "w"))))
        for folder, process in begun:
            (folder / "go").touch()
            out, _ = process.communicate(timeout=max(30.0, run.left()))
            if process.returncode:
                print(f"  {model}: status {process.returncode}: {(folder / 'err').read_text()[-1500:]}", flush=True)
            else:
                reports.append(json.loads(out.splitlines()[-1]))
        if reports:
            print_ratio(model, reports, "the program's own choices", 200)
            run.report("turns", **{model: [report["turns"] for report in reports]})


def why_not(run, row):
    """Why a launch was not restored."""
    built = [one for one in run.reports["build"]["launches"] if one["function"] == row["function"]]
    if not built:
        return "it was not recorded"
    refused = [one["refused"] for one in built if one["refused"]]
    jobs = [job for job in run.jobs if job["function"] == row["function"]]
    undone = [f"job {job['state']}: {job['reason'] or 'time was up'}" for job in jobs if job["state"] != "done"]
    return (undone or refused or ["its key has no choice"])[0]


def refused_elsewhere(run, rows):
    """Launches that were refused, of functions that no row is of."""
    counted = {row["function"] for row in rows}
    models = {row["function"]: model for model, found in run.reports["capture"].items() for row in found["functions"]}
    return [{"model": models.get(one["function"], "?"), "function": one["function"], "key": one["key"], "launches": 1,
             "configs": None, "config": None, "origin": "refused"}
            for one in run.reports["build"]["launches"] if one["refused"] and one["function"] not in counted]


def reached(run, rows):
    """Functions that have a choice of configs, by model: listed, launched, restored with every key; and files of the others."""
    for model, found in run.reports.get("restored", {}).items():
        listed = {one["function"]: one for one in found["functions"] if one["configs"] > 1}
        origins = collections.defaultdict(set)
        for row in rows:
            if row["model"] == model and row["origin"] != "only":
                origins[row["function"]].add(row["origin"])
        names = set(listed) | set(origins)
        whole = sum(own == {"restored"} for own in origins.values())
        print(f"  {model}: {whole} of {len(names)} functions with several configs restored, {len(names - set(origins))} not launched")
        files = collections.Counter(pathlib.Path(listed[name]["file"]).name for name in names - set(origins))
        if files:
            print("    not launched: " + ", ".join(f"{n} in {file}" for file, n in files.most_common(20)))


def table(run):
    rows, names = [], collections.Counter()
    for model, found in run.reports.get("restored", {}).items():
        for row in found["launches"]:
            rows.append({"model": model, **row})
    rows += refused_elsewhere(run, rows)
    choosing = [row for row in rows if row["origin"] != "only"]
    for what, of in (("keys", lambda row: 1), ("launches", lambda row: row["launches"])):
        total, good = sum(map(of, choosing)), sum(of(row) for row in choosing if row["origin"] == "restored")
        print(f"  {what}: {good} of {total} restored ({100 * good / max(1, total):.1f} %), {sum(map(of, rows)) - total} had one "
              "config")
    for row in choosing:
        row["why"] = None if row["origin"] == "restored" else why_not(run, row)
        names[row["model"], row["function"].rpartition(":")[2], row["origin"], row["why"]] += 1
    for (model, name, origin, why), n in sorted(names.items()):
        print(f"    {model:22} {name:52} {n:2} keys {origin}{': ' + why[:150] if why else ''}")
    reached(run, rows)
    run.report("table", rows=rows)


def gains(run):
    """The program's own choice over the winner, by the agent's measurements of that key; and both of a step of each shape."""
    def of(job, config):
        for i, one in enumerate(job["space"]):
            if all(one.get(name) == value for name, value in config.items() if name in one):
                return job["ratios"].get(i)
        return None

    found = []
    for model, report in run.reports.get("own", {}).items():
        for row in report["launches"]:
            if row["origin"] == "only" or row["config"] is None:
                continue
            values = {text for text in row["key"]}
            for job in run.jobs:
                is_key = all(repr(value) in values or repr(str(value)) in values for value in job["key"].values())
                winner = (job["winner"] or {}).get("config")
                if job["function"] == row["function"] and job["state"] == "done" and winner is not None and is_key:
                    own_ratio, best = of(job, row["config"]), job["ratios"].get(winner)
                    if own_ratio and best:
                        found.append({"model": model, "function": row["function"], "key": job["key"], "own": own_ratio,
                                      "winner": best, "gain": own_ratio / best})
    if found:
        logs = [math.log(one["gain"]) for one in found]
        against = [math.log(1 / one["winner"]) for one in found]
        print(f"gain over the program's own choices: {math.exp(statistics.mean(logs)):.3f} x (geometric mean of {len(found)} keys, "
              f"{min(one['gain'] for one in found):.3f} to {max(one['gain'] for one in found):.3f}); over the first config "
              f"{math.exp(statistics.mean(against)):.3f} x")
    for model in run.models:
        steps = {step: run.reports.get(step, {}).get(model, {}).get("step_ms") for step in ("own", "restored")}
        if all(steps.values()):
            print(f"{model}: a later step {statistics.median(steps['restored']):.2f} ms, with its own choices "
                  f"{statistics.median(steps['own']):.2f}")
    run.report("gains", rows=found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres-bin")
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--program", choices=("unmodified", "packages"), default="unmodified")
    parser.add_argument("--models")
    parser.add_argument("--shapes", type=int, help="only the first N shapes, or cases of packages")
    parser.add_argument("--steps", type=int, default=20, help="later steps of each process")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    parser.add_argument("--reserve", type=float, default=75, help="of these, kept for the release and the restored processes")
    parser.add_argument("--builders", type=int)
    parser.add_argument("--processes", type=int, default=0, help="of the step `steps`")
    parser.add_argument("--budget", type=float, help="device seconds for a job")
    parser.add_argument("--agent", default="--device cuda0 --screen-rounds 6 --final-rounds 15 --config-timeout 20")
    parser.add_argument("--skip-own", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.models is None:
        arguments.models = MODELS if arguments.program == "unmodified" else "gemlite,flaggems,liger,late,mlstm,fla,mamba,torchao"
    with tempfile.TemporaryDirectory(prefix="wt-captured-", dir="/tmp") as folder:
        scratch, paths = pathlib.Path(folder), [ROOT / "python"]
        scratch.chmod(0o755)
        wheels = sorted(arguments.wheels.glob("*.whl")) if arguments.wheels else []
        for wheel in wheels:  # Triton reads a kernel's text from its file
            place = scratch / wheel.name.split("-")[0]
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, place], check=True)
            paths.append(place)
        run = Run(arguments, scratch, paths, Server(scratch / "server", arguments.postgres_bin))
        try:
            for step in (capture, build, *(() if arguments.skip_own else (own,)), tune, release, restored, steps, table, gains):
                began = time.monotonic()
                print(f"{step.__name__}:", flush=True)
                step(run)
                run.report("seconds", **{step.__name__: time.monotonic() - began})
                print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
        finally:
            run.server.stop()


if __name__ == "__main__":
    main()
