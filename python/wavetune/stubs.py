"""Stand-ins for what a kernel's file imports and this process must not touch: torch, drivers, anything with a GPU.

A stand-in can be named, called and passed on, so that `DEVICE = driver.active.get_active_torch_device()` does no harm.
As soon as a decision or a number depends on it, that is an error which says what to give instead.
"""

from typing import Any, NoReturn

from .errors import PackError


class Stub:
    """Something of a module that is not there, known by its name only."""

    def __init__(self, path: str, known: dict[str, Any] | None = None, module: str | None = None):
        """`module`: what the file imports it from; None for the driver."""
        self.__dict__.update(_path=path, _known=known or {}, _module=module)

    def __getattr__(self, name: str) -> Any:
        path = f"{self._path}{'' if self._path.endswith('.') else '.'}{name}"
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._known[path] if path in self._known else Stub(path, self._known, self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> "Stub":
        return Stub(f"{self._path}(…)", self._known, self._module)

    def _refuse(self, *args: Any) -> NoReturn:
        why = f"pack does not execute {self._module}, only this file, triton and the standard library"
        if self._module is None:
            why = "there is no GPU here to ask"
        asks = self._module is None or self._module.split(".")[0] == "torch"
        hint = "; driver.active.get_current_target() answers for --arch" if asks else ""
        raise PackError(f"the value of {self._path} is needed to read the kernel, and {why}: put the value, or what makes "
                        f"it, into this file{hint}")

    __bool__ = __len__ = __iter__ = __getitem__ = __int__ = __float__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __truediv__ = __mod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __eq__(self, other: object) -> bool:
        return self is other or self._refuse()

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"<{self._path}>"


class Driver:
    """The active driver while a file is read: it knows the target that is packed for, and nothing of a device."""

    def __init__(self, target: Any):
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> Stub:
        return Stub("driver.active.get_active_torch_device()")

    def __getattr__(self, name: str) -> Stub:
        return Stub(f"driver.active.{name}")


def make_torch(backend: str) -> Stub:
    """torch: torch.version answers which kind of GPU is packed for."""
    return Stub("torch", {"torch.version.hip": "0" if backend == "hip" else None,
                          "torch.version.cuda": "0" if backend == "cuda" else None}, "torch")
