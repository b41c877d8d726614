"""What starting a GPU's runtime costs a process, by the number of GPUs that the runtime sees.

    bench/gpu_start.py [--hip] [--gpus N] [--rounds N]

A worker of wavetune hides all GPUs but its own (agent/device/gpu_runtime.c). Here a process that does nothing else starts
the CUDA driver (with --hip the HIP runtime) and takes a GPU, in turn with all GPUs visible that there are (the first N) and
with its own alone: one process, and four a GPU at once. Printed: medians of the wall's seconds from the first process's start
to the last one's end, and of each process's seconds in the runtime's initialization, in taking the GPU, and in giving it back.
"""

import argparse
import collections
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

AT_ONCE = 4  # processes on one GPU: as many as tuning a key needs


def runtime_library(is_hip):
    return ctypes.CDLL("libamdhip64.so" if is_hip else "libcuda.so.1")


def call(function, *arguments):
    code = function(*arguments)
    if code != 0:
        sys.exit(f"bench/gpu_start.py: {function.__name__} returned {code}")


def start(is_hip, ordinal):
    """In a separate process: prints the seconds of the three steps."""
    library, seconds, begin = runtime_library(is_hip), [], time.perf_counter()

    def lap():
        nonlocal begin
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()

    if is_hip:
        call(library.hipInit, 0)
        lap()
        call(library.hipSetDevice, ordinal)
        call(library.hipFree, None)  # makes the context
        lap()
        call(library.hipDeviceReset)
    else:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        call(library.cuInit, 0)
        lap()
        call(library.cuDeviceGet, ctypes.byref(device), ordinal)
        call(library.cuDevicePrimaryCtxRetain, ctypes.byref(context), device)
        lap()
        call(library.cuDevicePrimaryCtxRelease_v2, device)
    lap()
    print(json.dumps(seconds), flush=True)
    os._exit(0)  # the end of the interpreter and the runtime is not part of what is measured


def gpus_counted(is_hip):
    """Counted in a separate process, so that this one never starts the runtime."""
    name = "hipGetDeviceCount" if is_hip else "cuDeviceGetCount"
    code = (f"import ctypes; library = ctypes.CDLL({'libamdhip64.so' if is_hip else 'libcuda.so.1'!r}); n = ctypes.c_int(); "
            f"library.{'hipInit' if is_hip else 'cuInit'}(0); library.{name}(ctypes.byref(n)); print(n.value)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else 0


def visible(is_hip, n):
    """The variable with the GPUs that a process sees, and its value for the first n that this process sees."""
    variable = "HIP_VISIBLE_DEVICES" if is_hip else "CUDA_VISIBLE_DEVICES"
    listed = os.environ.get(variable)
    return variable, listed.split(",")[:n] if listed else [str(gpu) for gpu in range(n)]


def run(is_hip, gpus, n, own):
    """One process for each of `gpus` at once, with all n visible or its own: the wall's seconds and each one's steps."""
    variable, names = visible(is_hip, n)
    children, begin = [], time.perf_counter()
    for gpu in gpus:
        command = [sys.executable, __file__, "--start", str(0 if own else gpu)] + ["--hip"] * is_hip
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                         env={**os.environ, variable: names[gpu] if own else ",".join(names)}))
    steps = [json.loads(child.communicate()[0] or "[]") for child in children]
    if any(child.returncode for child in children):
        sys.exit("bench/gpu_start.py: a process could not start its GPU")
    return time.perf_counter() - begin, steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hip", action="store_true")
    parser.add_argument("--gpus", type=int, help="how many GPUs, from the first one; default: all that this process sees")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--start", type=int, metavar="GPU", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start is not None:
        start(arguments.hip, arguments.start)
    n = gpus_counted(arguments.hip)
    n = min(n, arguments.gpus) if arguments.gpus else n
    if n < 1:
        sys.exit("bench/gpu_start.py: there is no GPU that this runtime can start")
    cases = {"one process": [0], f"{AT_ONCE * n} at once": [i % n for i in range(AT_ONCE * n)]}
    seen = collections.defaultdict(list)
    for _ in range(arguments.rounds):
        for case, gpus in cases.items():
            for own in (False, True):
                seen[case, own].append(run(arguments.hip, gpus, n, own))
    for (case, own), runs in seen.items():
        steps = [statistics.median(each[i] for _, processes in runs for each in processes) for i in range(3)]
        print(f"{case:12} {'its own visible' if own else f'all {n} visible':15} {statistics.median(wall for wall, _ in runs):5.2f} s; "
              f"initialization {steps[0]:.2f}, taking the GPU {steps[1]:.2f}, giving it back {steps[2]:.2f}")
    for case in cases:
        walls = [statistics.median(wall for wall, _ in seen[case, own]) for own in (False, True)]
        print(f"ratio: {case}: {walls[0] / walls[1]:.2f} times as fast with its own alone")


if __name__ == "__main__":
    main()
