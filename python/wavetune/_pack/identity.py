"""identity.json (common/cache/identity.h): what the paths of an image's caches are made of,
recorded inside the image, which may lack torch, and has no GPU when it is built: what cannot be
found is null, and a note says so.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import tempfile
from contextlib import contextmanager
from typing import Any, Iterator

from .._canonical import Json, canonical
from .._errors import PackError, one_line
from .._runtime.environment import rocm
from .artifacts import installed_folder, installed_key, set_variables
from .folder import load_kernel, split_place
from .versions import describe
from .record import dejavu_code_version, function_members, plains, triton_autotune, tuning_key

Notes = list[str]


_OF_DEJAVU = ("TRITON_DEJAVU_STORAGE", "TRITON_DEJAVU_USE_ONLY_RESTORED",
              "TRITON_DEJAVU_FORCE_FALLBACK")


@contextmanager
def _private_storage() -> Iterator[None]:
    """Importing triton-dejavu makes files in its storage: not in the deployment's."""
    before = {name: os.environ.pop(name) for name in _OF_DEJAVU if name in os.environ}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_OF_DEJAVU[0]] = folder
        try:
            yield
        finally:
            del os.environ[_OF_DEJAVU[0]]
            os.environ.update(before)


@contextmanager
def _noted(notes: Notes, what: str) -> Iterator[None]:
    """An exception of the block becomes a note, and no more."""
    try:
        yield
    except Exception as error:
        notes.append(f"{what}: {one_line(error)}")


def _find_target(arch: str | None, notes: Notes) -> Any:
    import triton
    if arch is not None:
        from .stubs import Driver
        from .target import make_target
        target = make_target(arch)
        triton.runtime.driver.set_active(Driver(target))  # modules ask it which configs to list
        return target
    with _noted(notes, "Triton sees no GPU, so backend_hash is not known; name the arch with "
                "--arch"):
        return triton.runtime.driver.active.get_current_target()
    return None


def _triton(arch: str | None, notes: Notes) -> Json | None:
    try:
        import triton
        from triton.compiler import make_backend
    except ImportError as error:
        notes.append(f"triton cannot be imported: {one_line(error)}")
        return None
    found = {
        "version": triton.__version__, "key": installed_key(), "backend_hash": None,
        "folder": installed_folder()
    }
    target = _find_target(arch, notes)
    if target is not None:
        with _noted(notes, "Triton's back end has no hash"):  # before 3.5 it runs a linker
            found["backend_hash"] = make_backend(target).hash()
    return found


def _devices(gpu: str | None, notes: Notes) -> tuple[str | None, int | None]:
    """Name and number of the GPUs, as torch has them."""
    with _noted(notes, "the GPUs are not known" + ("" if gpu else "; name them with --gpu")):
        cuda, n = _cuda_of_torch()
        return gpu or cuda.get_device_name(), n
    return gpu, None


def _cuda_of_torch() -> tuple[Any, int]:
    """(torch.cuda, how many GPUs it sees)"""
    import torch
    n = torch.cuda.device_count()
    if n == 0:
        raise RuntimeError("torch sees no GPU")
    return torch.cuda, n


def _program_version(program: str, pattern: str) -> str:
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=True, text=True, timeout=60).stdout
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"{program} does not tell its version")
    return found[1]


def _rocm_of_linker() -> str:
    import triton
    linker = triton.backends.backends["amd"].compiler.path_to_rocm_lld()
    return _program_version(os.path.abspath(os.path.join(os.path.dirname(linker), "amdgpu-arch")),
                            r".*roc-(\d+\.\d+.\d+).*")


def _cuda_of_assembler() -> str:
    return _program_version(os.path.join(installed_folder(), "backends/nvidia/bin/ptxas"),
                            r"release (\d+\.\d+)")


def dejavu_runtime(torch: dict[str, str | None]) -> str | None:
    """The part of dejavu's path for ROCm or CUDA (triton-dejavu 0.7.5, dejavu_utilities)."""
    for kind, version, find in (("rocm", torch["torch_hip"], _rocm_of_linker),
                                ("cuda", torch["torch_cuda"], _cuda_of_assembler)):
        if version is None:
            continue
        stated = os.environ.get(f"_TRITON_DEJAVU_DETERMINED_{kind.upper()}_VERSION")
        try:
            return f"{kind}_{stated or find()}"
        except Exception:  # no such program, or one that says something else: as triton-dejavu does
            return f"{kind}_torch_{version}"
    return None


def _dejavu(torch: dict[str, str | None], gpu: str | None, notes: Notes) -> dict[str, str] | None:
    """The pieces of the storage identifier: the installed package's own, or by its rules."""
    if importlib.util.find_spec("triton_dejavu") is not None:
        with _noted(notes, "triton_dejavu is installed and does not say where it stores"):
            from triton_dejavu.dejavu_utilities import get_storage_identifier
            layout, triton, runtime, name = get_storage_identifier().split("/")
            return {"layout": layout, "triton": triton.removeprefix("triton_"), "runtime": runtime,
                    "gpu": name.removeprefix("gpu_")}
    runtime = dejavu_runtime(torch)
    if torch["triton"] is None or runtime is None or gpu is None:
        known = {"triton": torch["triton"], "torch": runtime, "a GPU's name": gpu}
        lacking = [name for name, value in known.items() if value is None]
        notes.append(f"the paths of triton-dejavu are not known without {' and '.join(lacking)}")
        return None
    return {
        "layout": "dejavu_0.7", "triton": torch["triton"], "runtime": runtime,
        "gpu": re.sub(r"[ /]", "_", gpu)
    }


def _tunableop(notes: Notes) -> Json | None:
    with _noted(notes, "the validators of TunableOp are not known"):
        return {"validators": [list(map(str, one))
                               for one in _cuda_of_torch()[0].tunable.get_validators()]}
    return None


def _moe_device_name(gpu: str | None, notes: Notes) -> str | None:
    """The name in files of MoE configs: vLLM's, else made of the GPU's by the same rule."""
    name = gpu
    if importlib.util.find_spec("vllm") is not None:
        with _noted(notes, "vllm is installed and does not name the device"):
            from vllm.platforms import current_platform
            name = current_platform.get_device_name()
    return None if name is None else re.sub(r"[\s/]+", "_", name)


def _import_attribute(place: str, notes: Notes) -> Any:
    """The object of "package.module:name", or None with a note."""
    module, colon, name = place.partition(":")
    if not colon or not module or not name:
        raise PackError(f'"{place}" is not package.module:function')
    found: Any = None
    with _noted(notes, f"{module} cannot be imported, so {name} is not recorded"):
        found = importlib.import_module(module)
    if found is None:
        return None
    for part in name.split("."):
        if not hasattr(found, part):
            raise PackError(f"{module} has no {name}")
        found = getattr(found, part)
    return found


def unwrap(found: Any) -> tuple[Any, Any]:
    """(the JITFunction, the autotuner or None) under decorators; (None, None): it is none."""
    tuner = None
    while not hasattr(found, "cache_key"):
        if type(found).__name__ == "Autotuner":
            tuner = found
        if not hasattr(found, "fn"):
            return None, None
        found = found.fn
    return found, tuner


def _is_dejavu(tuner: Any) -> bool:
    return type(tuner).__module__.partition(".")[0] == "triton_dejavu"


def _dejavu_members(jit: Any, tuner: Any) -> tuple[Json, Json]:
    """("autotune", "dejavu") of a record: three of the hashes are the autotuner's own."""
    import inspect
    values = plains({"quantiles": tuner.quantiles, "warmup": tuner.warmup_t, "rep": tuner.rep_t,
                     "use_cuda_graph": tuner.use_cuda_graph, "ignore_dtypes": tuner.ignore_dtypes})
    search = plains({
        "use_bo": tuner.use_bo, "use_random_search": tuner.use_random_search,
        "search_max_search_t": tuner.max_search_time_s, "search_max_n": tuner.search_max_n_trials})
    return {"decorator": "triton_dejavu", **values, **search}, {
        "layout": "dejavu_0.7", "autotune_config": tuner._param_hash,
        "code_version": dejavu_code_version(inspect.getsource(jit.fn)),
        "tune_features": tuner.key_hash, "kernel_configs": tuner.configs_hash, **values
    }


def _kernel_members(kernel: str) -> tuple[Json, Any]:
    """(the members of a record that name the kernel, the manifest of a folder or None)"""
    if re.fullmatch(r"sha256:[0-9a-f]{64}", kernel):
        return {"kernel": kernel}, None
    if (split_place(kernel)[0] / "kernel.json").is_file():
        loaded = load_kernel(kernel)
        dtypes = [f"torch.{a['dtype']}" for a in loaded.manifest["arguments"] if "shape" in a]
        return {"kernel": loaded.hash, "name": loaded.manifest["name"],
                "argument_dtypes": dtypes}, loaded.manifest
    return {"name": kernel}, None


def function_record(kernel: str, place: str, triton: Json | None,
                    notes: Notes) -> Json | None:
    """The record of the decorated function `place` ("package.module:function"). `kernel`: its hash,
    name or folder."""
    found = _import_attribute(place, notes)
    if found is None:
        return None
    jit, tuner = unwrap(found)
    if jit is None:
        raise PackError(f"{place} is no @triton.jit function")
    own, manifest = _kernel_members(kernel)
    keys = [] if tuner is None else list(tuner.orig_keys if _is_dejavu(tuner) else tuner.keys)
    record = {
        **own, "triton": triton and {n: triton[n] for n in ("version", "key", "backend_hash")},
        "function": function_members(jit), "key_names": keys,
        "tuning_key": keys if manifest is None else tuning_key(keys, manifest),
        "configs": [] if tuner is None else list(map(str, tuner.configs)), "autotune": None
    }
    if tuner is not None and _is_dejavu(tuner):
        record["autotune"], record["dejavu"] = _dejavu_members(jit, tuner)
    elif tuner is not None:
        record["autotune"] = triton_autotune(tuner)
    return record


def make_identity(arch: str | None, gpu: str | None,
                  functions: list[str]) -> tuple[Json, Notes]:
    """`functions`: texts KERNEL=package.module:function."""
    notes: Notes = []
    pairs = []
    for text in functions:
        kernel, equals, place = text.rpartition("=")
        if not equals or not kernel:
            raise PackError(f'"{text}" is not KERNEL=package.module:function')
        pairs.append((kernel, place))
    installed = describe()
    with _private_storage():
        triton = _triton(arch, notes)
        name, n = _devices(gpu, notes)
        identity = {
            "version": 1, "triton": triton, "torch": installed["torch"],
            "hip": installed["torch_hip"], "rocm": rocm(), "gpu": name, "devices": n,
            "variables": set_variables() if triton else {},
            "dejavu": _dejavu(installed, name, notes), "tunableop": _tunableop(notes),
            "moe_device_name": _moe_device_name(name, notes)
        }
        records = [function_record(kernel, place, triton, notes)
                   for kernel, place in pairs] if triton else []
    identity["functions"] = [record for record in records if record is not None]
    return identity, notes


def put_identity(text: str, digest: str, environment: dict[str, str]) -> None:
    """PUT /v1/images/{digest} at $WAVETUNE_URL with $WAVETUNE_TOKEN."""
    from ..client import ApiError, Client
    url, token = environment.get("WAVETUNE_URL"), environment.get("WAVETUNE_TOKEN")
    if not url or not token:
        raise PackError("--put needs the server in WAVETUNE_URL and a token in WAVETUNE_TOKEN")
    try:
        Client(url, token, patience_s=0).request("PUT", f"/v1/images/{digest}", text.encode())
    except ValueError as error:  # a URL to which no token is sent, or none
        raise PackError(f"--put: {error}") from None
    except ApiError as error:
        why = error.detail if not error.status else \
            f"the server at {url} answered {error.status}: {one_line(canonical(error.problem))}"
        raise PackError(why, 4 if 400 <= error.status < 500 else 3) from None
