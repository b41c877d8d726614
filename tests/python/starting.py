"""What the tests of programs that start tuned share: running one, and what it would be told."""
import functools
import json
import os
import subprocess
import sys

from conftest import ROOT, TUNED
from contract_server import ENVIRONMENT, TOKEN

STEERING = ("TRITON_", "WAVETUNE_", "TORCH")
MIDDLE = {"BLOCK": 512, "num_warps": 4}  # what no program's own tuning finds: the stub's last config wins
LAST = [1024, 8]
UNTOUCHED = {"used": [LAST] * 2, "benchmarked": 12, "compiled": 2}


def environment(cache, server=None, patience=60.0, **variables):
    """`patience`: seconds that the program waits for its server, where a test is not about those; 0: what it waits itself."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}
    own.update(PYTHONPATH=f"{ROOT / 'python'}:{TUNED}", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore",
               TRITON_CACHE_DIR=str(cache))
    if patience and (server is not None or "WAVETUNE_CACHE" in variables):
        own["PYTHONPATH"] += f":{TUNED / 'patient'}"
        own["PATIENT_S"] = str(patience)
    if server is not None:
        own.update(WAVETUNE_URL=server if isinstance(server, str) else server.url, WAVETUNE_TOKEN=TOKEN,
                   WAVETUNE_ENVIRONMENT=json.dumps(ENVIRONMENT))
    own.update(variables)
    return own


def python(*arguments, cache, server=None, patience=60.0, **variables):
    """Runs Python and returns what the program printed, a JSON document a line; it must end well and print nothing else."""
    done = subprocess.run([sys.executable, *map(str, arguments)], env=environment(cache, server, patience, **variables),
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tuned(*arguments, cache, server=None, patience=60.0, **variables):
    """Runs the program by `python3 -m wavetune run`."""
    return python("-m", "wavetune", "run", TUNED / "program.py", *arguments, cache=cache, server=server, patience=patience,
                  **variables)


@functools.lru_cache(None)
def closures():
    """Of the program's functions, by name."""
    text = ("import json, triton, program\ntriton.runtime.driver.set_active(program.DRIVER)\nimport ops\n"
            "from wavetune._runtime.closure import closure\n"
            "print(json.dumps({n: closure(getattr(ops, n)) for n in ('add_kernel', 'fill_kernel')}))")
    return python("-c", text, cache="/nonexistent")[0]


def choices(*sizes, config=MIDDLE, names=("add_kernel", "fill_kernel")):
    """What `document` takes."""
    dtypes = {"add_kernel": ["'torch.float16'"] * 2, "fill_kernel": ["'torch.float16'"]}
    return [(closures()[name], name, [str(n), *dtypes[name]], config) for n in sizes for name in names]


def essence(report):
    return {name: report[name] for name in ("used", "benchmarked", "compiled")}
