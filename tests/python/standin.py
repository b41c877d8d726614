"""Stand-ins for a GPU's driver, its tensors and torch, with which programs launch kernels where there is no GPU. Triton, its
compiler and its autotuner are the real ones, of any version from 3.3 to 3.9. Nothing is launched. One thread uses it.
"""
import array
import ctypes
import functools
import os
import pathlib
import sys
import types

import triton
from triton.backends.compiler import GPUTarget

TARGETS = {"gfx942": GPUTarget("hip", "gfx942", 64), "sm_90": GPUTarget("cuda", 90, 32)}
SIZES = {"torch.float64": 8, "torch.float32": 4, "torch.float16": 2, "torch.bfloat16": 2, "torch.int8": 1, "torch.uint8": 1,
         "torch.int16": 2, "torch.int32": 4, "torch.int64": 8, "torch.bool": 1, "torch.float8_e4m3fn": 1, "torch.float8_e5m2": 1,
         "torch.float8_e4m3fnuz": 1, "torch.float8_e5m2fnuz": 1}
CODES = {"torch.int8": "b", "torch.uint8": "B", "torch.int16": "h", "torch.int32": "i", "torch.int64": "q", "torch.bool": "b"}


def keep_key():
    """Triton's key is a digest of the compiler's files, which takes half a second of each program: the virtual environment keeps it."""
    module = sys.modules["triton.runtime.cache" if hasattr(triton.runtime.cache, "triton_key") else "triton.compiler.compiler"]
    compiler = pathlib.Path(triton.__file__).with_name("_C") / "libtriton.so"
    kept = pathlib.Path(sys.prefix, f"triton-key-{compiler.stat().st_mtime_ns}")
    made = module.triton_key

    @functools.lru_cache(None)
    def key():
        if not kept.exists():
            new = kept.with_suffix(f".{os.getpid()}")
            new.write_text(made())
            new.replace(kept)
        return kept.read_text()

    for user in (module, triton.runtime.autotuner):
        if hasattr(user, "triton_key"):
            user.triton_key = key


if sys.prefix != sys.base_prefix:
    keep_key()


class Dtype:
    def __init__(self, name):
        self.name, self.itemsize = name, SIZES[name]

    def __str__(self):
        return self.name


@functools.lru_cache(None)
def dtype_of(name):
    """One object for each type, as torch has them: Triton knows them by their addresses."""
    return Dtype(name)


class Storage:
    """`size` bytes of the host's memory."""

    def __init__(self, size):
        self.buffer = (ctypes.c_char * (size + 512))()
        self.size = size

    def data_ptr(self):
        return -(-ctypes.addressof(self.buffer) // 256) * 256

    def nbytes(self):
        return self.size


class Device:
    def __init__(self, kind):
        self.type = kind


class Tensor:
    """The members of torch.Tensor that launches read."""

    def __init__(self, dtype="float16", *shape, stride=None, offset=0, storage=None, values=None, device="cuda"):
        self.dtype, self.shape, self.device = dtype_of("torch." + dtype), shape, Device(device)
        self.own_stride = stride or tuple(self.product(shape[i + 1:]) for i in range(len(shape)))
        self.offset, item = offset, SIZES[str(self.dtype)]
        self.storage = storage or Storage(item * (offset + self.product(shape)))
        if values is not None:
            data = array.array(CODES[str(self.dtype)], values).tobytes()
            ctypes.memmove(self.data_ptr(), data, len(data))

    @staticmethod
    def product(extents):
        n = 1
        for extent in extents:
            n *= extent
        return n

    data = None

    def stride(self):
        return self.own_stride

    def storage_offset(self):
        return self.offset

    def element_size(self):
        return SIZES[str(self.dtype)]

    def untyped_storage(self):
        return self.storage

    def data_ptr(self):
        return self.storage.data_ptr() + self.offset * self.element_size()

    def ptr_range(self):
        return self.storage.nbytes()

    def detach(self):
        return self

    def as_strided(self, shape, stride):
        return Tensor(str(self.dtype)[6:], *shape, stride=stride, offset=self.offset, storage=self.storage)

    def cpu(self):
        if os.environ.get("NO_COPIES"):
            raise RuntimeError("the device is gone")
        return self

    def zero_(self):
        self.zeroed = True

    def fill_(self, value):
        pass

    def add_(self, other):
        pass

    def clone(self):
        return self

    def copy_(self, other):
        pass


class Utils:
    def load_binary(self, *_):
        return (1, 1, 32, 0, 1024)[:4 if triton.__version__.startswith("3.3") else 5]

    def get_device_properties(self, _):
        return {"max_shared_mem": 1 << 20}


class Launcher:
    """Of a compiled kernel: it launches nothing."""

    def __init__(self, source, metadata):
        pass

    def __call__(self, *arguments):
        pass


class Driver:
    """The benchmark measures nothing: each of its times is less than the one before, so that the last config wins; with
    `first_wins`, more. With $COMPILE_ALL it compiles what it would measure, as a GPU's does."""

    utils, launcher_cls = Utils(), Launcher

    def __init__(self, arch="sm_90", first_wins=False):
        self.target, self.first_wins, self.benchmarked = TARGETS[arch], first_wins, 0

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_benchmarker(self):
        def bench(kernel_call, quantiles):
            self.benchmarked += 1
            if os.environ.get("COMPILE_ALL"):
                kernel_call()
            return [float(self.benchmarked) if self.first_wins else 1.0 / self.benchmarked] * 3

        return bench


def use(driver, **members):
    """Makes `driver` Triton's, and a torch with the stand-in's tensors that of the program where it has none."""
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    for name, value in members.items():
        setattr(torch, name, value)
    sys.modules.setdefault("torch", torch)
    triton.runtime.driver.set_active(driver)


class Compiles:
    """Counts kernels that are compiled to the end. `names`: of each."""

    def __init__(self):
        self.names = []
        for backend, last in (("amd", "make_hsaco"), ("nvidia", "make_cubin")):
            compiler = triton.backends.backends[backend].compiler
            call = self._counted(getattr(compiler, last))
            setattr(compiler, last, staticmethod(call) if isinstance(vars(compiler)[last], staticmethod) else call)

    def _counted(self, make):
        def call(*arguments, **more):
            self.names += [one.get("name") for one in arguments if isinstance(one, dict)]  # its metadata
            return make(*arguments, **more)
        return call

    @property
    def n(self):
        return len(self.names)
