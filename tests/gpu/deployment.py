"""Caches that unmodified tools take, on a real GPU: from a function under @triton.autotune, and from a table of TunableOp, to
deployments that neither benchmark nor compile. Needs torch and Triton here, a server ($WAVETUNE_URL, $WAVETUNE_TOKEN) and wavetune's
programs, which find their libraries in $WAVETUNE_LIBRARIES. Prints what it saw; the last line says how it went.

    deployment.py triton|tunableop PROGRAMS SCRATCH DEVICE
"""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests/python/kernels"
N = 1 << 24
OURS = {"LD_LIBRARY_PATH": os.environ["WAVETUNE_LIBRARIES"]}
SIGNATURE = ("x_ptr=*fp16[n], y_ptr=*fp16[n]:write, stride=i64(1), flag=i1(1), factor=fp32(1), "
             "MODE=constexpr('DOUBLE-S')")


def run(command, **variables):
    """Output of a command; what it says on stderr is shown when it fails."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=280)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-1500:]}")
    return done.stdout


class Place:
    def __init__(self, programs, scratch, device):
        self.programs, self.device = pathlib.Path(programs), device
        self.folder = pathlib.Path(scratch) / "deployment"
        self.folder.mkdir(exist_ok=True)
        listed = json.loads(self.program("wavetune-agent", "probe"))["devices"]
        self.environment = next(d["environment"] for d in listed if d["device"] == device)

    def program(self, name, *arguments):
        return run([self.programs / name, *arguments], **OURS)

    def bridge(self, *arguments):
        return run([sys.executable, "-m", "wavetune", *arguments], PYTHONPATH=f"{ROOT / 'python'}:{KERNELS}",
                   PYTHONDONTWRITEBYTECODE="1")

    def deployed(self, what, n, **variables):
        """A process of its own, with nothing of this one's that steers Triton or TunableOp."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "PYTORCH_TUNABLEOP_"))}
        done = subprocess.run([sys.executable, ROOT / "tests/gpu/deployed.py", what, str(n)], capture_output=True, text=True,
                              timeout=280, env={**own, "PYTHONPATH": str(KERNELS), "PYTHONDONTWRITEBYTECODE": "1",
                                                **variables})
        if done.returncode:
            raise SystemExit(f"deployed.py {what} {n}: {done.stderr[-1500:]}")
        seen = json.loads(done.stdout.splitlines()[-1])
        print(what, variables, seen)
        return seen

    def fetched(self, form, environment, *more):
        """The variables that fetch prints."""
        said = self.program("wavetune", "fetch", "--to", self.folder / "cache", "--format", form, "--environment",
                            json.dumps(environment), "--identity", self.folder / "identity.json", "--budget-ms", "20000",
                            "--print-env", *more)
        return dict(word.split("=", 1) for word in shlex.split(said) if "=" in word)


def triton(place):
    """Packs in the image, tunes on the GPU, publishes, fetches, runs the deployment."""
    arch = place.environment["arch"]
    place.bridge("identity", "--output", place.folder / "first.json")
    place.bridge("pack", KERNELS / "scaled.py", "--kernel", place.folder / "scale", "--output", place.folder / "build", "--arch",
                 arch, "--image", place.folder / "first.json", "--key", f"n={N}", "--signature", SIGNATURE, "--grid",
                 "lambda META: (triton.cdiv(n, META['BLOCK']), )")
    place.bridge("identity", "--function", f"{place.folder / 'scale'}=scaled:scale_kernel", "--output",
                 place.folder / "identity.json")
    place.program("wavetune", "kernel", "push", place.folder / "scale", "--build", place.folder / "build")
    agent = subprocess.Popen([place.programs / "wavetune-agent", "run", "--state", place.folder / "agent", "--device",
                              place.device], env={**os.environ, **OURS}, stdout=subprocess.DEVNULL, stderr=open(place.folder / "agent.log", "w"))
    try:
        hardware = {name: place.environment[name] for name in ("gpu", "arch")}
        for _ in range(100):
            if json.loads(place.program("wavetune", "agents", "--json")):
                break
            time.sleep(0.1)
        (job,) = json.loads(place.program("wavetune", "submit", place.folder / "scale", "--key", f"n={N}", "--environment",
                                          json.dumps(hardware), "--wait", "--json"))
    finally:
        agent.terminate()
        agent.wait(30)
    assert job["state"] == "done", job
    environment = job["environment"]
    space = json.loads((place.folder / "scale/space.json").read_text())
    # The one that Triton does not try first, whichever is faster: that it is taken shows that the cache was read.
    pin = [{"kernel": job["kernel"], "key": {"n": N}, "config": space["configs"][-1]}]
    (place.folder / "pins.json").write_text(json.dumps(pin))
    place.program("wavetune", "publish", "--environment", json.dumps(environment), "--pins", place.folder / "pins.json",
                  "--channel", "stable")
    variables = place.fetched("triton", environment)
    tuned = place.deployed("scale", N, TRITON_CACHE_DIR=str(place.folder / "own"))
    assert tuned["right"] and tuned["benchmarked"] == 2 and tuned["compiled"] == 2, tuned
    served = place.deployed("scale", N, **variables)
    assert served["right"] and (served["benchmarked"], served["compiled"], served["from_cache"]) == (0, 0, 1), served
    wanted = space["configs"][-1]
    assert all(f"{name}: {value}" in served["best"] for name, value in wanted.items()), (served, wanted)
    other = place.deployed("scale", N, **variables, TRITON_DEFAULT_FP_FUSION="0")
    assert other["benchmarked"] == 2 and other["right"], other
    print(f"no benchmark and no compile: {1000 * served['seconds']:.0f} ms to the first result, {1000 * tuned['seconds']:.0f} "
          f"without the cache; another environment tunes as if nothing were there")


def tunableop(place):
    """A table that TunableOp wrote, imported, published, fetched, and read by it."""
    written = place.folder / "tunableop.csv"
    first = place.deployed("linear", 256, PYTORCH_TUNABLEOP_ENABLED="1", PYTORCH_TUNABLEOP_TUNING="1",
                           PYTORCH_TUNABLEOP_FILENAME=str(written))
    table = next(iter(sorted(place.folder.glob("tunableop*.csv"))))
    print(table.read_text())
    place.bridge("identity", "--output", place.folder / "identity.json")
    image = json.loads((place.folder / "identity.json").read_text())
    # The file says what torch it is for; what fetch asks for is the image's, which has a Triton besides.
    environment = {**{n: v for n, v in place.environment.items() if v}, "triton": image["triton"]["version"]}
    told = json.loads(place.program("wavetune", "import", "tunableop", table, "--environment", json.dumps(environment), "--tag",
                                    "gemm", "--json"))
    whole = told["environment"]
    place.program("wavetune", "publish", "--environment", json.dumps(whole), "--tag", "gemm", "--channel", "stable")
    variables = place.fetched("tunableop", whole, "--tag", "gemm")
    second = place.deployed("linear", 256, **variables)
    ours = [row for row in first["results"] if row[0].startswith("Gemm")]
    assert second["accepted"] is True and ours, (first, second)
    assert {tuple(row[:3]) for row in ours} <= {tuple(row[:3]) for row in second["results"]}, (first, second)
    other = place.folder / "other"
    other.mkdir()
    for file in pathlib.Path(variables["PYTORCH_TUNABLEOP_FILENAME"]).parent.glob("*.csv"):
        text = file.read_text()
        (other / file.name).write_text(text.replace("Validator,PT_VERSION,", "Validator,PT_VERSION,9", 1))
    name = pathlib.Path(variables["PYTORCH_TUNABLEOP_FILENAME"]).name
    third = place.deployed("linear", 256, **{**variables, "PYTORCH_TUNABLEOP_FILENAME": str(other / name)})
    assert third["accepted"] is False, third
    print(f"{len(ours)} results taken; none with another torch")


if __name__ == "__main__":
    {"triton": triton, "tunableop": tunableop}[sys.argv[1]](Place(*sys.argv[2:]))
