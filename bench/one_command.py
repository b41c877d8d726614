#!/usr/bin/env python3
"""From a program to a tuned program with one command, without a server: `python3 -m wavetune tune`
beside Triton's own cold autotuning of the same program, in one run on a GPU.

    bench/one_command.py [--wheels DIR] [--models NAME,…] [--skip-alone] [--skip-oracle]
                         [--json FILE]

For each model (matmul: three keys of 108 configs; DeltaNet and others of unmodified_model.py), each
process with an empty folder of Triton:
  alone    the program without wavetune: seconds of the process
  tune     `wavetune tune` of it, with an empty folder of winners: seconds of the command
  again    the same again
  started  the program with these winners: its first steps, benchmarks and compiles
For matmul, all configs are then measured in several processes: the regret of the winners, and of
what Triton chose alone.

Wavetune is the installed wheel with its programs (WHEEL=FILE bench/on_gpu.sh one), else this tree
with those of $WAVETUNE_BUILD. The wheels of the models' packages lie in DIR where they are not
installed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import tuning

BENCH = pathlib.Path(__file__).resolve().parent
FORWARD = ("GatedDeltaNet", )  # fla refuses its backward under Triton 3.4 to 3.7 on Hopper


def unpacked(wheel, scratch):
    """The folder of a wheel's content; Triton reads a kernel's text from its file."""
    place = scratch / wheel.name.split("-")[0]
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, place], check=True)
    return place


class Bench:
    def __init__(self, arguments, scratch):
        self.arguments, self.scratch, self.n, self.reports = arguments, scratch, 0, {}
        wheels = sorted(arguments.wheels.glob("*.whl")) if arguments.wheels else []
        self.is_installed = importlib.util.find_spec("wavetune") is not None
        places = [] if self.is_installed else [tuning.ROOT / "python"]
        places += [unpacked(wheel, scratch) for wheel in wheels]
        self.path = os.pathsep.join(map(str, places))
        print("with the installed wheel" if self.is_installed else "with this tree", flush=True)

    def run(self, *words, **variables):
        """(seconds, the last line of stdout as JSON) of a Python process with an empty folder of
        Triton; None where it failed."""
        self.n += 1
        own = {
            name: value
            for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))
        }
        if not self.is_installed and "WAVETUNE_BUILD" in os.environ:
            own["WAVETUNE_BUILD"] = os.environ["WAVETUNE_BUILD"]
        own |= {
            "TRITON_CACHE_DIR": str(self.scratch / f"triton-{self.n}"), "PYTHONPATH": self.path,
            **variables
        }
        began = time.monotonic()
        done = subprocess.run([sys.executable, *map(str, words)],
                              env=own,
                              cwd=self.scratch,
                              capture_output=True,
                              text=True)
        seconds = time.monotonic() - began
        lines = done.stdout.splitlines()
        if not lines or done.returncode not in (0, 1):
            print(f"  status {done.returncode}: {done.stderr[-3000:]}", flush=True)
            return seconds, None
        found = json.loads(lines[-1])
        if done.returncode:
            print(f"  status 1: {done.stderr[-2000:]}", flush=True)
        return seconds, found

    def measure(self, model):
        program = [BENCH / "matmul_model.py"
                   ] if model == "matmul" else [BENCH / "unmodified_model.py", model]
        program += ["--forward"] if model in FORWARD else []
        cache, report = self.scratch / f"winners-{model}", {}
        print(f"{model}:", flush=True)

        def tune(name):
            seconds, found = report[name] = self.run("-m", "wavetune", "tune", "--cache", cache,
                                                     "--json", *program)
            if found is not None:
                tuned = [one for one in found["keys"] if one["state"] == "tuned"]
                parts = ", ".join(f"{part} {value:.1f}" for part, value in found["seconds"].items())
                print(
                    f"  {name:8} {seconds:.1f} s: {len(tuned)} of {len(found['keys'])} keys tuned, "
                    f"{sum(one['seconds'] for one in tuned):.1f} device seconds; "
                    f"until the end of each part: {parts}",
                    flush=True)
                for one in found["keys"]:
                    if one["state"] != "tuned":
                        print(f"    {one['function']} {json.dumps(one['key'])}: {one['why']}",
                              flush=True)

        if not self.arguments.skip_alone:
            seconds, found = report["alone"] = self.run(*program)
            self.show("alone", seconds, found)
        tune("tune")
        tune("again")
        seconds, found = report["started"] = self.run(*program, WAVETUNE_CACHE=str(cache))
        self.show("started", seconds, found)
        if "alone" in report and report["tune"][1] is not None and report["alone"][1] is not None:
            report["ratio"] = report["alone"][0] / report["tune"][0]
            print(f"  {model}: {report['ratio']:.2f} x faster than alone", flush=True)
        if model == "matmul" and not self.arguments.skip_oracle:
            self.regret(report)
        return report

    @staticmethod
    def show(name, seconds, found):
        if found is not None:
            print(
                f"  {name:8} {seconds:.1f} s: first steps "
                f"{', '.join(f'{one:.2f}' for one in found['first_s'])} s, {found['benchmarked']} "
                f"benchmarks, {found['compiled']} compiles, {found['from_cache']} from the cache",
                flush=True)

    def regret(self, report):
        """Of the winners, and of Triton's choices, against every config."""
        kernel = next(one for one in tuning.TRITON if one.name == "matmul:triton")
        keys = [dict(zip(("M", "N", "K"), key)) for key in tuning.MATMUL_NAMED]
        place = self.scratch / "oracle"
        place.mkdir()
        build, _ = tuning.pack(kernel,
                               place,
                               self.arguments.arch,
                               keys,
                               options=["--keep-spilling"])
        exact = tuning.oracle(kernel, place, build, self.arguments.device, keys,
                              self.arguments.rounds, self.arguments.processes)
        report["regret"] = {}
        for name, chosen in (("tune", self.winners(report)),
                             ("alone", (report.get("alone", (0, None))[1] or {}).get("configs",
                                                                                     []))):
            losses = [
                exact.regret(i, kernel.ordinal(config)) for i, config in enumerate(chosen)
                if config is not None
            ]
            report["regret"][name] = losses
            if losses:
                print(f"  regret of {name}: {', '.join(f'{100 * one:.2f} %' for one in losses)}",
                      flush=True)

    @staticmethod
    def winners(report):
        keys = (report["tune"][1] or {"keys": []})["keys"]
        by_key = {(one["key"]["m"], one["key"]["n"], one["key"]["k"]): one.get("winner")
                  for one in keys}
        return [by_key.get(key) for key in tuning.MATMUL_NAMED]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=pathlib.Path)
    parser.add_argument("--models", default="matmul,DeltaNet")
    parser.add_argument("--skip-alone", action="store_true")
    parser.add_argument("--skip-oracle", action="store_true")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--device", default="cuda0", help="of the oracle")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wt-one-", dir="/tmp") as folder:
        scratch = pathlib.Path(folder)
        scratch.chmod(0o755)
        bench = Bench(arguments, scratch)
        for model in arguments.models.split(","):
            bench.reports[model] = bench.measure(model)
            if arguments.json:
                arguments.json.write_text(json.dumps(bench.reports))


main()
