"""Stand-ins for what a kernel's file imports and this process must not touch: torch, drivers,
anything with a GPU. They can be named, called and passed on. What follows from the target (kind of
GPU, capability, shared memory) is answered; where anything depends on more, that is an error which
says what to give instead.
"""

import types
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NoReturn

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
        why = f"pack does not execute {self._module}, only this file, triton, the standard " \
            "library and what --package-root has"
        if self._module is None:
            why = "there is no GPU here to ask"
        asks = self._module is None or self._module.split(".")[0] == "torch"
        hint = "; driver.active.get_current_target() answers for --arch" if asks else ""
        raise Needed(f"the value of {self._path} is needed to read the kernel, and {why}: put the "
                     f"value, or what makes it, into this file{hint}")

    __bool__ = __len__ = __iter__ = __getitem__ = __int__ = \
        __float__ = __index__ = __contains__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = \
        __rmul__ = __floordiv__ = __truediv__ = __mod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

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
    shared = _LDS_OF_AMD.get(target.arch,
                             65536) if target.backend == "hip" else _SHARED_OF_CUDA.get(target.arch)
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
    def answer(value: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: value

    known = {
        "torch.version.hip": "0" if target.backend == "hip" else None,
        "torch.version.cuda": "0" if target.backend == "cuda" else None,
        "torch.cuda.is_available": answer(True), "torch.cuda.device_count": answer(1),
        "torch.cuda.current_device": answer(0), "torch.cuda.get_device_capability": answer(
            _capability(target)), "torch.__version__": version, **{
                f"torch.{name}": dtype for name, dtype in DTYPES.items()
            }, "torch.half": DTYPES["float16"], "torch.float": DTYPES["float32"],
        "torch.long": DTYPES["int64"]
    }
    if version is None:
        known["torch.__version__"] = Stub(
            "torch.__version__", why="its version is not known: --torch VERSION states it"
        )
    return Stub("torch", known, "torch")


def known_elsewhere() -> dict[str, Json]:
    """Answers of other packages that follow from the target being a GPU of AMD or NVIDIA."""
    return {
        "transformers": {
            f"transformers.utils.is_torch_{name}_available": lambda *args: False
            for name in ELSEWHERE
        }
    }


class _Version:
    """packaging.version.Version as far as comparing releases goes."""

    def __init__(self, text: str):
        numbers, rest = [], text.partition("+")[0].removeprefix("v")
        while rest and rest[0].isdigit():
            digits = rest[:len(rest) - len(rest.lstrip("0123456789"))]
            numbers.append(int(digits))
            rest = rest[len(digits):]
            if not rest.startswith(".") or not rest[1:2].isdigit():
                break
            rest = rest[1:]
        self.text, self.release = text, tuple(numbers)
        self.major, self.minor, self.micro = (*numbers, 0, 0, 0)[:3]
        stripped = numbers[:]
        while stripped and stripped[-1] == 0:
            stripped.pop()
        self._order = (stripped, not rest or "post" in rest)

    def __lt__(self, other: "_Version") -> bool:
        return self._order < other._order

    def __le__(self, other: "_Version") -> bool:
        return self._order <= other._order

    def __gt__(self, other: "_Version") -> bool:
        return self._order > other._order

    def __ge__(self, other: "_Version") -> bool:
        return self._order >= other._order

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
