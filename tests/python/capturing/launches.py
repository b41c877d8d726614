"""A program that launches the kernels of `package` where there is no GPU: Triton and its autotuner are the real ones, tensors
are stand-ins with memory of the host behind them.

    launches.py NAME…     runs those of the functions below; prints one line of JSON
"""
import enum
import json
import multiprocessing
import os
import sys
import time
import types

import triton

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import standin  # noqa: E402
from standin import Storage, Tensor  # noqa: E402


class Cuda:
    is_capturing = False

    def is_available(self):
        return True

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return self.is_capturing


DRIVER = standin.Driver()
CUDA = Cuda()


def run(kernel, *args, grid=(1,), **kwargs):
    kernel.run(*args, grid=grid, warmup=True, **kwargs)


def mixed(n=256, bias=None, **more):
    from package import kernels
    x, y = Tensor("float16", 4, n, stride=(2 * n, 1), offset=8), Tensor("float32", n)
    lengths = Tensor("int32", 5, values=[0, 64, 128, 192, 256])
    run(kernels.mixed_kernel, x, y, bias, lengths, n, 0.088, True,
        grid=lambda meta: (triton.cdiv(n, meta["BLOCK"]), meta["BLOCKS"]), TYPE=triton.language.float32, **more)


def small():
    mixed(32)


def with_options():
    mixed(32, debug=True)


def biased():
    mixed(512, Tensor("float16", 512))


def pair():
    from package import kernels
    storage = Storage(1024)
    run(kernels.pair_kernel, (Tensor("float32", 256, storage=storage), 2.5), 100)


def hostile(ways=("none", "socket", "read", "write", "memory", "time", "signal", "environment")):
    from package import hostile
    for i, way in enumerate(ways):
        run(hostile.hostile_kernel, Tensor("float32", 64), i, way)


def forged():
    from package import forger
    run(forger.forged_kernel, Tensor("float32", 64), 64, os.environ["WAY"])


def forking():
    hostile(("fork",))


def upside_down():
    from package import kernels
    run(kernels.upside_down, Tensor("float32", 64), None, 64)


def plain():
    from package import kernels
    x = Tensor("float16", 256)
    for n in (100, 101, 96, 1, 100):
        run(kernels.plain_kernel, x, n, 7, BLOCK=128, num_warps=2)


def keyed():
    from package import kernels
    x = Tensor("float32", 64)
    for more in ({}, {"layout": False}, {"layout": True, "name": "another"}, {"name": "it's \"both\""}):
        run(kernels.keyed_kernel, x, 33, 0.1, None, **more)
    run(kernels.keyed_kernel, x, 33, 1e-6, True, layout=True)


class Number(enum.IntEnum):
    TWO = 2


class Kind(str, enum.Enum):
    ONE = "one"


class Plain(enum.Enum):
    A = None


def constants():
    from package import helpers, kernels
    dtype = type("dtype", (), {"__module__": "torch", "__repr__": lambda own: "torch.bfloat16"})()
    run(kernels.constants_kernel, Tensor("float32", 64), 33, float("inf"), kernels.squared, dtype, float("-inf"), float("nan"),
        Number.TWO, Kind.ONE, Plain.A, (4, 8), helpers.half)


SEEN = {}  # what tests of restored keys look at


def hooked_split():
    from package import hooked
    x, y = Tensor("float32", 64), Tensor("float32", 64)
    y.zeroed = False
    run(hooked.split_kernel, x, y, 64, grid=lambda meta: (meta["SPLIT"],))
    SEEN.update(split=hooked.split_kernel.best_config.kwargs, is_zeroed=y.zeroed)


def hooked_sum():
    from package import hooked
    storage = Storage(4 * 512)
    x, y = (Tensor("float32", 64, offset=offset, storage=storage) for offset in (0, 128))
    run(hooked.sum_kernel, x, y, 64)


def described(block=(1, 1), m=128, k=64):
    from package import hooked
    from triton.tools.tensor_descriptor import TensorDescriptor
    block = list(block)  # one list for all three, which a hook replaces
    a, b, c, scale = (Tensor(*of) for of in (("float16", m, k), ("float16", k, 32), ("float16", m, 32), ("float32", 1)))
    a, b, c = (TensorDescriptor(one, list(one.shape), list(one.stride()), block) for one in (a, b, c))
    run(hooked.matmul_kernel, a, b, c, scale, m, 32, k, grid=lambda meta: (triton.cdiv(m, meta["BLOCK_M"]),))
    SEEN["block_shape"] = a.block_shape


def described_twice():
    described()
    described(m=256)


def parts(n=256):
    from package import kernels
    storage = Storage(4 * (3 * n + 40))
    q, k, o = (Tensor("float32", n, offset=offset, storage=storage) for offset in (0, n, 2 * n + 8))
    run(kernels.parts_kernel, q, k, o, n, grid=lambda meta: (triton.cdiv(n, meta["BLOCK"]),))


def optionless():
    from package import kernels
    run(kernels.optionless_kernel, Tensor("float32", 64), 33)


def accented():
    from package import kernels
    run(kernels.accented_kernel, Tensor("float32", 64), 33)


def classed(sizes=(128, 1, 64, 100, 1, 128, 100)):
    from package import kernels
    for n in sizes:
        run(kernels.classed_kernel, Tensor("float32", 128), n, 3)


def misaligned():
    from package import kernels
    run(kernels.classed_kernel, Tensor("float32", 128, offset=1), 128, 3)


def even():
    from package import kernels
    for n in (128, 96, 256, 160, 128):  # all divisible by 16; some by 64, which the config that wins has
        run(kernels.even_kernel, Tensor("float32", 256), n, 3)


def few_specialisations():
    sys.modules["wavetune._runtime.capture"].SPECIALISATIONS_MAX = 2
    classed()


def unknown_frames():
    """Autotuners whose run() keeps its arguments elsewhere."""
    from package import kernels
    classed((128,))
    tuners = type(kernels.classed_kernel)
    before = tuners.run
    code = """def run(self, *given, **named):
    return self.fn.run(*given, **named, BLOCK=64)
"""
    own = {}
    exec(code, own)
    tuners.run = own["run"]
    classed((1,))
    tuners.run = before


def hooked():
    from package import kernels
    run(kernels.hooked_kernel, Tensor("float32", 64), 64)


def calling():
    from package import kernels
    run(kernels.calling_kernel, Tensor("float32", 64, device="cpu"), 64, None)


def raising():
    def grid(meta):
        raise KeyError("nothing here")

    from package import kernels
    run(kernels.calling_kernel, Tensor("float32", 64), 96, None, grid=grid)


def slow():
    def grid(meta):
        time.sleep(0.6)
        return (1,)

    from package import kernels
    run(kernels.calling_kernel, Tensor("float32", 64), 80, None, grid=grid)


def numerous():
    """416 configs, as torchao's products have, and a grid that takes 30 µs of the thread's time for each."""
    def grid(meta):
        until = time.thread_time() + 3e-5
        while time.thread_time() < until:
            pass
        return (1,)

    from package import kernels
    configs = [triton.Config({"BLOCK": 64}, num_warps=warps, num_stages=stages) for stages in range(1, 105) for warps in (1, 2, 4, 8)]
    run(triton.autotune(configs, ["n"])(kernels.plain_kernel), Tensor("float32", 64), 64, 2, grid=grid)


def odd_arguments():
    from package import helpers, kernels
    storage = Storage(2048)
    x = Tensor("float16", 4, 8, storage=storage)
    others = [lambda: 0, helpers.half, types.SimpleNamespace(), (Tensor("int32", 4, device="cpu"), None),
              Tensor("float16", 16, offset=16, storage=storage),
              triton.reinterpret(Tensor("float8_e4m3fn", 64), triton.language.float8e4nv),
              types.SimpleNamespace(tma_desc_cpu_ptr=0)]
    for i, other in enumerate(others):
        try:
            run(kernels.calling_kernel, x, 1000 + i, other)
        except Exception:
            pass  # Triton's own refusal


def tables():
    from package import kernels
    contents = {"int64": [5, 3, 9, 3], "int32": [3, 1, 2, 0], "bool": [1, 1, 1]}
    for i, (dtype, values) in enumerate(contents.items()):
        run(kernels.calling_kernel, Tensor("float32", 64), 2000 + i, Tensor(dtype, len(values), values=values))


def steered():
    from package import kernels
    run(kernels.steered_kernel, Tensor("int32", 64), Tensor("int32", 64), Tensor("float32", 64), 64)


def refused_tuners():
    """Autotuners that ask for more than a capture can give."""
    from package import kernels
    plain, configs = kernels.plain_kernel, kernels.configs(64, 128)

    class Between:
        def __init__(self, fn):
            self.fn, self.arg_names, self.run = fn, fn.arg_names, fn.run

    def failing(args):
        raise ValueError("never")

    hooks = {"pre_hook": lambda nargs, reset_only=False: nargs["x_ptr"].add_(1), "post_hook": lambda *_, **__: None}
    overridden = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    for config in overridden:
        config.ir_override = None if triton.__version__.startswith("3.3.") else "some.ttgir"
    typed = [triton.Config({"BLOCK": block, "D": triton.language.float32}) for block in (64, 128)]
    objects = [triton.Config({"BLOCK": block, "D": [block]}) for block in (64, 128)]
    tuners = [triton.autotune(configs, ["n"], **hooks)(plain), triton.autotune(overridden, ["n"])(plain),
              triton.autotune(configs, ["n"])(Between(plain)), triton.autotune(typed, ["n"])(plain),
              triton.autotune(objects, ["n"])(plain),
              triton.autotune(configs, ["n"])(triton.heuristics({"D": failing})(plain)),
              triton.autotune(configs, ["n"])(triton.heuristics({"D": lambda args: object()})(plain)),
              triton.autotune(configs, ["n"])(plain), triton.autotune(configs, ["n"])(plain)]
    for i, tuner in enumerate(tuners):
        last = {"D": 5} if i < 3 else {"grid": (1, 2, 3, 4), "D": 5} if i == 7 else {}
        error = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Triton prints what it refuses
        try:
            run(tuner, Tensor("float16", 256), 100 + i, **last)
        except Exception:
            pass
        os.dup2(error, 2)


def broken():
    """Whatever fails in a recording, the program goes on."""
    capture = sys.modules["wavetune._runtime.capture"]

    def failing(*_):
        raise KeyError("not expected")

    for n, part in ((32, "configs_of"), (16, "is_capturing")):
        before = getattr(capture, part)
        setattr(capture, part, failing)
        mixed(n)
        setattr(capture, part, before)
    before, capture.function_document = capture.function_document, failing
    mixed(48)
    recorder = capture._recorder
    while recorder._queue or recorder._is_busy:
        time.sleep(0.01)
    capture.function_document = before
    pair()


def few_keys():
    sys.modules["wavetune._runtime.capture"].KEYS_MAX = 3
    many()


def other_keys():
    sys.modules["wavetune._runtime.capture"].KEYS_MAX = 3
    many(8)


def stuck():
    capture = sys.modules["wavetune._runtime.capture"]
    capture.FOLDER_S = capture.LAST_S = 0.0
    capture._recorder._write = lambda *_: time.sleep(60)


def late():
    """The thread that writes gets no time before the program's end."""
    capture = sys.modules["wavetune._runtime.capture"]
    capture.LAST_S, made = 0.0, capture.function_document

    def function_document(*args):
        while not capture._recorder._is_ended:
            time.sleep(0.01)
        return made(*args)

    capture.function_document = function_document
    mixed()


def late_child():
    """A process of multiprocessing, which ends without atexit before Python 3.13."""
    child = multiprocessing.get_context("fork").Process(target=late)
    child.start()
    child.join()


def full_disk():
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def long_texts():
    sys.modules["wavetune._runtime.texts"].TEXT_MAX = 100
    many()


def captured_stream():
    CUDA.is_capturing = True
    mixed()
    CUDA.is_capturing = False
    mixed(128)


def many(start=1):
    from package import kernels
    for n in range(start, start + 7):
        run(kernels.pair_kernel, (Tensor("float32", 256), 2.5), n)


def fork():
    mixed()
    child = os.fork()
    if child == 0:
        mixed(128)
        sys.exit()  # atexit
    assert os.waitpid(child, 0)[1] == 0


def main(names):
    standin.use(DRIVER, cuda=CUDA)
    for name in names:
        globals()[name]()
    counters = sys.modules.get("wavetune._runtime.counters")
    if "wavetune._runtime.capture" in sys.modules:  # what the thread counts
        recorder = sys.modules["wavetune._runtime.capture"]._recorder
        if recorder is not None:
            recorder.stop()
    print(json.dumps({"benchmarked": DRIVER.benchmarked, **({"seen": SEEN} if SEEN else {}), "counters": counters.snapshot() if counters else None}))


if __name__ == "__main__":
    main(sys.argv[1:])
