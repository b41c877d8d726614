"""Packs one kernel folder: variants for keys, every config of its space compiled, and the folder of docs/builds.md.

The build is made in a folder beside its place and put there by rename when it is whole. Equal inputs (kernel, keys,
arch, toolchain) give an equal build.json, byte for byte.
"""

import os
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import options as option_roles
from .artifacts import Image, installed_key
from .canonical import canonical, digest
from .compiling import Task, compile_task, store_result
from .errors import PackError, one_line
from .decorator import check_restored, unfollowed
from .folder import Kernel, check_fills
from .function import check_function
from .expressions import Expression
from .keys import Key, format_key, order_key
from .pool import run_tasks
from .record import config_objects, make_record
from .source import Decorated, load_function
from .spaces import Config
from .specialise import Variant, define_values, variants_of
from .target import make_backend, make_target, triton_version, uses_buffer_ops

VARIANTS_MAX = 256
OBJECTS_MAX = 65536
SIZE_MAX = 16 << 20


@dataclass
class Request:
    """What the command line asks for."""

    kernel: Kernel
    keys: list[Key]
    arch: str
    processes: int
    timeout_s: float
    gpu_name: str = ""
    toolchain: dict[str, str] = field(default_factory=dict)
    cache: str | None = None
    module: str | None = None
    image: Image | None = None
    keep_spilling: bool = False


@dataclass
class Plan:
    """Everything that is decided before anything is compiled."""

    request: Request
    version: tuple[int, int]
    target: Any
    backend: Any
    decorated: Decorated
    variants: list[Variant]
    configs: list[list[Config]]  # by variant
    baselines: dict[str, list[Config]]  # by the variant's "when"


def clean_environment() -> None:
    """No variable of the caller's shell steers a compile: what enters a build stands in its space."""
    for name in [name for name in os.environ if option_roles.is_steering(name)]:
        del os.environ[name]
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # objects hold no path of this machine
    # Triton 3.9 announces another default for its successor; what a deployment sets is part of its identity.
    warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION is unset")


def make_plan(request: Request) -> Plan:
    version = triton_version()
    target = make_target(request.arch)
    backend = make_backend(target)
    kernel = request.kernel
    keys = [order_key(key, kernel.key_names) for key in request.keys]
    decorated = load_function(kernel.source, kernel.entry, target, request.module)
    jit = decorated.jit
    check_fills(kernel.manifest["arguments"])
    check_restored(decorated, kernel.manifest)
    check_function(jit, kernel.manifest, {n for n, role in kernel.space.roles.items() if role != "env" and
                                          any(p.name == n for p in jit.params)})
    option_roles.check_roles(kernel.space, {p.name for p in jit.params if p.is_constexpr},
                             option_roles.option_names(backend), kernel.entry)
    facts = {"gpu_name": request.gpu_name, "arch": request.arch}
    configs = list(kernel.space.points([{**key, **facts} for key in keys]))
    if not configs:
        raise PackError("the conditions of the space exclude every config for the keys given")
    uses_range = target.backend == "hip" and any(uses_buffer_ops(version, config) for config in configs)
    variants = variants_of(jit, kernel.manifest, configs, keys, uses_range)
    if len(variants) > VARIANTS_MAX:
        raise PackError(f"the keys need {len(variants)} variants, a build has at most {VARIANTS_MAX}; pack fewer keys")
    scopes = [[{**key, **facts} for key in variant.keys] for variant in variants]
    own = [list(kernel.space.points(its)) for its in scopes]
    for variant, points in zip(variants, own):
        if not points:
            raise PackError(f"the conditions of the space exclude every config for the key "
                            f"{format_key(variant.keys[0])}")
    if sum(map(len, own)) > OBJECTS_MAX:
        raise PackError(f"{sum(map(len, own))} objects would be packed, a build has at most {OBJECTS_MAX}; pack fewer "
                        "keys or configs")
    baselines = {variant.when: kernel.space.baselines(its) for variant, its in zip(variants, scopes)}
    return Plan(request, version, target, backend, decorated, variants, own, baselines)


def _scalars(manifest: dict[str, Any], variant: Variant, names: list[str]) -> dict[str, Any]:
    """What passed scalars are in a call that needs this variant; a float and a bool are like any other."""
    values = {}
    for argument in manifest["arguments"]:
        name, dtype = argument["name"], argument["dtype"]
        if "shape" in argument or name not in names:
            continue
        if dtype == "bool":
            values[name] = True
        elif dtype.startswith(("float", "bfloat")):
            values[name] = 0.5
        else:
            values[name] = Expression(str(argument["value"])).evaluate(variant.keys[0])
    return values


def make_task(plan: Plan, variant: Variant, config: Config) -> Task:
    jit, manifest = plan.decorated.jit, plan.request.kernel.manifest
    constexprs, chosen, environment = option_roles.split_config(
        config, plan.request.kernel.space.roles, {p.name for p in jit.params if p.is_constexpr},
        option_roles.option_names(plan.backend))
    constexprs.update(define_values(manifest, variant.keys[0], config))
    may_spill = plan.request.keep_spilling or config in plan.baselines[variant.when]
    return Task(variant, _scalars(manifest, variant, jit.arg_names), constexprs, chosen, environment, may_spill)


class _Progress:
    """A bar on a terminal, nothing anywhere else."""

    def __init__(self, total: int):
        self.total, self.done, self.failed = total, 0, 0
        self.shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.started = time.monotonic()

    def step(self, failed: bool) -> None:
        self.done += 1
        self.failed += failed
        if self.shown:
            filled = 24 * self.done // self.total
            print(f"\rpack [{'#' * filled}{'.' * (24 - filled)}] {self.done}/{self.total}  "
                  f"{time.monotonic() - self.started:.0f} s  {self.failed} failed\x1b[K", end="", file=sys.stderr,
                  flush=True)

    def end(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def compile_all(plan: Plan, tasks: list[Task], objects: Path) -> list[dict[str, Any]]:
    """For every task {"digest", "metadata"} or {"error"}; equal tasks are compiled once."""
    jit, target, version = plan.decorated.jit, plan.target, plan.version
    first: dict[Any, int] = {}
    index = [first.setdefault(task.identity(), i) for i, task in enumerate(tasks)]
    distinct = sorted(first.values())
    results: dict[int, dict[str, Any]] = {}

    def run(number: int) -> dict[str, Any]:
        try:
            return store_result(*compile_task(tasks[distinct[number]], jit, target, plan.backend), target, version,
                                objects, plan.request.image)
        except KeyboardInterrupt:
            raise
        except PackError as error:
            return {"error": one_line(str(error))}
        except BaseException as error:  # whatever a compiler raises belongs to its config
            return {"error": one_line(error)}

    progress = _Progress(len(distinct))

    def done(number: int, result: Any, reason: str | None) -> None:
        results[distinct[number]] = result if reason is None else {"error": reason}
        progress.step("error" in results[distinct[number]])

    installed_key()  # read once, before the workers are forked
    try:
        run_tasks([tasks[i].environment for i in distinct], run, plan.request.processes, plan.request.timeout_s, done)
    finally:
        progress.end()
    return [results[i] for i in index]


def _variant_json(variant: Variant, configs: list[Config], results: list[dict[str, Any]]) -> dict[str, Any]:
    own: dict[str, Any] = {"signature": variant.signature, "constexprs": variant.constexprs}
    if variant.when:
        own["when"] = variant.when
    own["objects"] = [{"config": c, **r} for c, r in zip(configs, results) if "digest" in r]
    failed = [{"config": c, "error": r["error"]} for c, r in zip(configs, results) if "digest" not in r]
    if failed:
        own["failed"] = failed
    if not own["objects"]:
        raise PackError(f"no config compiles for the key {format_key(variant.keys[0])}; the first one says: "
                        f"{failed[0]['error']}", 1)
    return own


def make_build(plan: Plan, folder: Path) -> dict[str, Any]:
    """Compiles everything into the folder and returns the build."""
    objects = folder / "objects"
    objects.mkdir()
    tasks = [make_task(plan, variant, config)
             for variant, configs in zip(plan.variants, plan.configs) for config in configs]
    results = iter(compile_all(plan, tasks, objects))
    variants = [_variant_json(variant, configs, [next(results) for _ in configs])
                for variant, configs in zip(plan.variants, plan.configs)]
    import triton
    kernel = plan.request.kernel
    configs = config_objects(plan.decorated, kernel.space.configs or plan.configs[0], plan.backend)
    return {"kernel": kernel.hash, "toolchain": {"triton": triton.__version__, **plan.request.toolchain},
            "arch": plan.request.arch, "warp_size": plan.target.warp_size, "variants": variants,
            "record": make_record(plan.decorated, kernel.hash, kernel.manifest, configs, plan.backend)}


def _publish(made: Path, place: Path) -> None:
    """Puts a whole folder into its place; an older build there goes away."""
    if place.exists():
        old = made.with_name(made.name + ".old")
        place.rename(old)
        made.rename(place)
        shutil.rmtree(old)
    else:
        made.rename(place)


def check_place(place: Path) -> None:
    if place.exists() and not (place / "build.json").exists() and (not place.is_dir() or any(place.iterdir())):
        raise PackError(f"{place} is there and holds no build; name another folder with --output")


def pack(request: Request, place: Path) -> dict[str, Any]:
    """Makes the build at `place`; returns what `pack --json` prints."""
    started = time.monotonic()
    check_place(place)
    plan = make_plan(request)
    for sentence in unfollowed(plan.decorated):
        print(f"wavetune pack: {sentence}", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
        os.environ["TRITON_CACHE_DIR"] = request.cache or str(Path(scratch) / "cache")
        made = Path(scratch) / "build"
        made.mkdir()
        build = make_build(plan, made)
        text = canonical(build)
        if len(text.encode()) > SIZE_MAX:
            raise PackError(f"build.json would have {len(text.encode())} bytes, a server takes {SIZE_MAX}; pack fewer "
                            "keys or configs")
        (made / "build.json").write_text(text)
        made.chmod(0o755)
        _publish(made, place)
    return {"kernel": request.kernel.hash, "build": digest(build), "arch": request.arch, "folder": str(place),
            "seconds": round(time.monotonic() - started, 3),
            "variants": [{"when": v.get("when", ""), "keys": plan.variants[i].keys, "objects": len(v["objects"]),
                          "failed": len(v.get("failed", []))} for i, v in enumerate(build["variants"])]}
