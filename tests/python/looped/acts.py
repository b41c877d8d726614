"""A program that does what its words say, where there is no GPU (tests/python/test_tune.py); at its
end it prints a line of JSON.

    N       launches the autotuned function of ops.py with N elements      keyed   launches that
    with keys of another kind
    host    launches that with tensors of the host                         fail    raises an
    exception
    table   launches one without an autotuner, whose block is an argument
    wait    waits until what it launched is recorded, says so, and then for a signal
    child   starts a process that stays, and does not end at SIGTERM
"""
import json
import os
import signal
import sys
import time

sys.path[:0] = [
    os.path.dirname(os.path.abspath(__file__)),
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
]
import standin  # noqa: E402

driver, compiles, used = standin.Driver("gfx942"), standin.Compiles(), []
standin.use(driver)
import ops  # noqa: E402


def launch(tuner, n, *more, device="cuda"):
    y, x = standin.Tensor("float32", n, device=device), standin.Tensor("float32", n, device=device)
    tuner.run(y, x, n, *more, grid=lambda meta: (-(-n // meta.get("BLOCK", 64)), ), warmup=True)
    used.append(tuner.best_config.num_warps)


def wait():
    place = os.path.join(os.environ["WAVETUNE_CAPTURE_TO"], "launches")
    while not os.path.isdir(place) or len([name for name in os.listdir(place) if name[0] != "."
                                           ]) < len(used):
        time.sleep(0.01)
    print("waiting", flush=True)
    signal.pause()


def child():
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.alarm(200)
        signal.pause()


for word in sys.argv[1:]:
    if word.isdigit():
        launch(ops.fake_add, int(word))
    elif word == "keyed":
        launch(ops.Keyed.fake_add, 1000, 1e-6)
    elif word == "host":
        launch(ops.fake_add, 512, device="cpu")
    elif word == "table":
        ops.Table.fake_add.run(standin.Tensor("float32", 64), standin.Tensor("float32", 64), 64, BLOCK=64,
                               num_warps=1, grid=(1, ), warmup=True)
    elif word == "wait":
        wait()
    elif word == "child":
        child()
    elif word == "fail":
        raise ValueError("as it was told")
counters = sys.modules.get("wavetune._runtime.counters")
print(
    json.dumps({
        "used": used, "benchmarked": driver.benchmarked, "compiled": compiles.n,
        "counters": counters.snapshot() if counters else None
    }))
