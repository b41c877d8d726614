"""Stand-ins for what a kernel's file imports and this process must not touch: torch, drivers,
anything with a GPU. They can be named, called and passed on. What follows from the target (kind of
GPU, capability, shared memory) is answered; where anything depends on more, that is an error which
says what to give instead.
"""

import functools
import re
import types
from contextlib import contextmanager
from typing import Any, Iterator, NoReturn

from .._canonical import Json
from .._errors import PackError
from .signature import BYTES

ELSEWHERE = ("npu", "xpu", "mps", "mlu", "musa", "hpu")  # members that torch has on other devices
# Bytes of shared memory that a workgroup can have: AMD's CDNA and RDNA ISA guides ("LDS"); CUDA C++
# Programming Guide, "Technical specifications per compute capability", as Triton's driver reports
# it (opt-in).
_LDS_OF_AMD = {"gfx950": 163840, "gfx1250": 327680}
_SHARED_OF_CUDA = {
    75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448, 100: 232448, 103: 232448,
    120: 101376
}


class Needed(BaseException):
    """A value that nothing here knows. Not for a file's `except Exception` to swallow."""


@contextmanager
def refusing(place: str = "") -> Iterator[None]:
    """What is needed and not known becomes a refusal."""
    try:
        yield
    except Needed as error:
        raise PackError(f"{place}{error}") from None


class Stub:
    """Something of a module that is not there, known by its name only."""

    def __init__(self, path: str, known: Json | None = None, module: str | None = None,
                 why: str | None = None):
        """`module`: what the file imports it from; None: the driver. `why`: why it is not there."""
        self.__dict__.update(_path=path, _known=known or {}, _module=module, _why=why)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}{'' if self._path.endswith('.') else '.'}{name}"
        if path in self._known:
            return self._known[path]
        if name.startswith("__") and name.endswith("__") or path.startswith(
                "torch.") and name in ELSEWHERE:
            raise AttributeError(name)
        return Stub(path, self._known, self._module, self._why)

    def __call__(self, *args: Any, **kwargs: Any) -> "Stub":
        return Stub(f"{self._path}(…)", self._known, self._module, self._why)

    def _imported_from(self, module: str) -> "Stub":
        """The same, of a module inside."""
        return Stub(self._path, self._known, module, self._why)

    def _refuse(self, *args: Any) -> NoReturn:
        if self._why:
            raise Needed(f"the value of {self._path} is needed to read the kernel, and {self._why}")
        why = "there is no GPU here to ask" if self._module is None else \
            f"pack does not execute {self._module}, only this file, triton, the standard library " \
            "and what --package-root has"
        asks = self._module is None or self._module.split(".")[0] == "torch"
        hint = "; driver.active.get_current_target() answers for --arch" if asks else ""
        raise Needed(f"the value of {self._path} is needed to read the kernel, and {why}: put the "
                     f"value, or what makes it, into this file{hint}")

    __bool__ = __len__ = __iter__ = __getitem__ = __int__ = __float__ = __index__ = _refuse
    __contains__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __floordiv__ = __truediv__ = __mod__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __eq__(self, other: object) -> bool:
        return self is other or self._refuse()

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self._path}>"


class _Properties(dict[str, Any]):
    """Of the device: what the target says."""

    def __missing__(self, name: str) -> NoReturn:
        raise Needed(f"the device's {name} is needed to read the kernel, and there is no GPU here "
                     "to ask: put the value into this file")


def device_properties(target: Any) -> Json:
    shared = _SHARED_OF_CUDA.get(target.arch) if target.backend == "cuda" else \
        _LDS_OF_AMD.get(target.arch, 65536)
    known = _Properties(warpSize=target.warp_size)
    if shared is not None:
        known["max_shared_mem"] = shared
    return known


class Driver:
    """The active driver while a file is read, which knows the target and nothing of a device."""

    def __init__(self, target: Any):
        self.target = target
        self.utils = Stub("driver.active.utils", {
            "driver.active.utils.get_device_properties": lambda device=0: device_properties(target)
        })

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> Stub:
        return Stub("driver.active.get_active_torch_device()")

    def __getattr__(self, name: str) -> Stub:
        return Stub(f"driver.active.{name}")


def _capability(target: Any) -> tuple[int, int]:
    """torch.cuda.get_device_capability(): (9, 4) of gfx942, (9, 0) of sm_90."""
    if target.backend == "cuda":
        return target.arch // 10, target.arch % 10
    digits = target.arch.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16)


class Dtype:
    """A dtype of torch, by its name."""

    def __init__(self, name: str, itemsize: int):
        self.name, self.itemsize, self.is_floating_point = name, itemsize, "float" in name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


DTYPES = {name: Dtype(name, size) for name, size in BYTES.items() if name != "float8e4b15"}


def make_torch(target: Any, version: str | None = None) -> Stub:
    """torch: what follows from the target, its dtypes, and its version where that is known."""
    answers = {"is_available": True, "device_count": 1, "current_device": 0,
               "get_device_capability": _capability(target)}
    stated = version if version is not None else Stub(
        "torch.__version__", why="its version is not known: --torch VERSION states it")
    known = {
        "version.hip": "0" if target.backend == "hip" else None,
        "version.cuda": "0" if target.backend == "cuda" else None,
        **{f"cuda.{name}": lambda *args, value=value, **kwargs: value
           for name, value in answers.items()}, **DTYPES, "half": DTYPES["float16"],
        "float": DTYPES["float32"], "long": DTYPES["int64"], "__version__": stated
    }
    return Stub("torch", {f"torch.{name}": value for name, value in known.items()}, "torch")


def known_elsewhere() -> dict[str, Json]:
    """Answers of other packages that follow from the target being a GPU of AMD or NVIDIA."""
    return {"transformers": {f"transformers.utils.is_torch_{name}_available": lambda *args: False
                             for name in ELSEWHERE}}


def known_members(target: Any) -> dict[str, Json]:
    """Members that modules of packages find by looking for a GPU, by module: they follow from the
    target."""
    answers = {"is_rocm": target.backend == "hip", "is_cuda": target.backend == "cuda",
               "is_cuda_alike": True,
               **{f"is_{name}": False for name in ("cpu", "tpu", "out_of_tree", *ELSEWHERE)}}
    platform = Stub("current_platform", {f"current_platform.{name}": lambda value=value: value
                                         for name, value in answers.items()}, "vllm.platforms")
    return {"vllm.triton_utils.importing": {"HAS_TRITON": True},
            "vllm.platforms": {"current_platform": platform}}


@functools.total_ordering
class _Version:
    """packaging.version.Version as far as comparing releases goes."""

    def __init__(self, text: str):
        # A stand-in, asked whether it is empty, says what is needed.
        found = re.match(r"v?(\d+(?:\.\d+)*)?([^+]*)", text or "")
        assert found is not None  # both parts may be empty
        numbers = [int(number) for number in (found[1] or "").split(".") if number]
        self.text, self.release = text, tuple(numbers)
        self.major, self.minor, self.micro = (*numbers, 0, 0, 0)[:3]
        while numbers and numbers[-1] == 0:
            numbers.pop()
        self._order = numbers, not found[2] or "post" in found[2]

    def __lt__(self, other: "_Version") -> bool:
        return self._order < other._order

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Version) and self._order == other._order

    def __hash__(self) -> int:
        return hash(str(self._order))

    def __str__(self) -> str:
        return self.text


def make_packaging() -> types.ModuleType:
    """`packaging`, of which kernels' files compare versions."""
    package, module = types.ModuleType("packaging"), types.ModuleType("packaging.version")
    module.Version = module.parse = _Version  # type: ignore[attr-defined]
    package.version = module  # type: ignore[attr-defined]
    return package
