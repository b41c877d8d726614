"""Packs one kernel folder: variants for keys, every config of its space compiled, and the folder of
docs/builds.md, which is made beside its place and renamed when it is whole. Equal inputs (kernel,
keys, arch, toolchain) give an equal build.json, byte for byte.
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

from .._canonical import Fields, Json, canonical, digest
from .._errors import PackError, one_line
from . import options as option_roles
from .artifacts import Image, installed_key
from .calls import Tensor, heuristic_values, pruned, prunes
from .compiling import Task, compile_task, store_result
from .configs import decorator_configs, decorator_space
from .decorator import check_restored, unfollowed
from .expressions import Expression, expression
from .folder import Kernel, check_fills
from .function import check_function
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
    torch: str | None = None
    ignored: tuple[str, ...] = ()


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
    is_pruned: bool  # by the decorator, for each key
    # by variant: what the decorator's pruning leaves out
    left_out: list[list[Config]] = field(default_factory=list)


def clean_environment() -> None:
    """No variable of the caller's shell steers a compile: what enters a build is in its space."""
    for name in [name for name in os.environ if option_roles.is_steering(name)]:
        del os.environ[name]
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # objects hold no path of this machine
    # Triton 3.9 announces another default for its successor; what a deployment sets is part of its
    # identity.
    warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION is unset")


def make_plan(request: Request) -> Plan:
    version = triton_version()
    target = make_target(request.arch)
    backend = make_backend(target)
    kernel = request.kernel
    keys = [order_key(key, kernel.key_names) for key in request.keys]
    decorated = load_function(kernel.source, kernel.entry, target, request.module, kernel.root,
                              request.torch)
    jit = decorated.jit
    check_fills(kernel.manifest["arguments"])
    check_restored(decorated, kernel.manifest)
    check_function(
        jit,
        kernel.manifest,
        {
            n
            for n, role in kernel.space.roles.items()
            if role != "env" and any(p.name == n for p in jit.params)
        },
        kernel.constants,
        decorated.heuristics,
    )
    option_roles.check_roles(kernel.space, {p.name for p in jit.params if p.is_constexpr},
                             option_roles.option_names(backend), kernel.entry)
    facts = {"gpu_name": request.gpu_name, "arch": request.arch}
    configs = list(kernel.space.points([{**key, **facts} for key in keys]))
    if not configs:
        raise PackError("the conditions of the space exclude every config for the keys given")
    uses_range = target.backend == "hip" and any(
        uses_buffer_ops(version, config) for config in configs)
    is_pruned = prunes(decorated) and "prune_configs_by" not in request.ignored and _is_decorators(
        kernel, decorated, backend)
    stated = {*kernel.manifest.get("defines", {}), *kernel.constants}
    is_alone = is_pruned or any(name not in stated for name in decorated.heuristics)
    variants = variants_of(jit, kernel.manifest, configs, keys, uses_range, is_alone)
    if len(variants) > VARIANTS_MAX:
        raise PackError(f"the keys need {len(variants)} variants, a build has at most "
                        f"{VARIANTS_MAX}; pack fewer keys")
    scopes = [[{**key, **facts} for key in variant.keys] for variant in variants]
    own = [list(kernel.space.points(its)) for its in scopes]
    for variant, points in zip(variants, own):
        if not points:
            raise PackError("the conditions of the space exclude every config for the key "
                            f"{format_key(variant.keys[0])}")
    if sum(map(len, own)) > OBJECTS_MAX:
        raise PackError(f"{sum(map(len, own))} objects would be packed, a build has at most "
                        f"{OBJECTS_MAX}; pack fewer keys or configs")
    baselines = {
        variant.when: kernel.space.baselines(its) for variant, its in zip(variants, scopes)
    }
    plan = Plan(request, version, target, backend, decorated, variants, own, baselines, is_pruned,
                [[] for _ in variants])
    if is_pruned:
        _prune(plan)
    return plan


def _is_decorators(kernel: Kernel, decorated: Decorated, backend: Any) -> bool:
    """Whether the space is the decorator's: what was stated with --space is packed as it is."""
    return kernel.space.configs is not None and decorated.autotuner is not None and (
        kernel.space.configs == decorator_space(decorated, backend)["configs"])


def _prune(plan: Plan) -> None:
    """Moves the configs that the decorator's pruning leaves out for a key to `left_out`."""
    decorated, kernel = plan.decorated, plan.request.kernel
    points, _ = decorator_configs(decorated, plan.backend)
    for i, variant in enumerate(plan.variants):
        call = make_call(kernel.manifest, variant, kernel.constants)
        for name, text in kernel.manifest.get("defines", {}).items():
            if expression(str(text)).names <= set(variant.keys[0]):
                call[name] = expression(str(text)).evaluate(variant.keys[0])
        left = pruned(decorated, call, decorated.autotuner.configs)
        kept = [
            point for config, point in zip(decorated.autotuner.configs, points)
            if any(config is other for other in left)
        ]
        plan.left_out[i] = [config for config in plan.configs[i] if config not in kept]
        plan.configs[i] = [config for config in plan.configs[i] if config in kept]
        if any(config in plan.left_out[i] for config in plan.baselines[variant.when]):
            raise PackError(f"{decorated.place}: the default config, with which others are "
                            "compared, is left out by prune_configs_by for the key "
                            f"{format_key(variant.keys[0])}: make another one the default in "
                            "space.json, or pack all of them with --ignore prune_configs_by")


def make_call(manifest: Json, variant: Variant,
              constants: Fields) -> Json:
    """A call that needs this variant, without what configs and heuristics give."""
    values: Json = dict(constants)
    for argument in manifest["arguments"]:
        name, dtype = argument["name"], argument["dtype"]
        if "shape" in argument:
            shape = tuple(
                Expression(str(extent)).evaluate(variant.keys[0]) for extent in argument["shape"])
            values[name] = Tensor(dtype, shape, is_small="S" in variant.attributes.get(name, ""))
        elif dtype == "bool":
            values[name] = True
        elif dtype.startswith(("float", "bfloat")):
            values[name] = 0.5
        else:
            values[name] = Expression(str(argument["value"])).evaluate(variant.keys[0])
    return values


def make_task(plan: Plan, variant: Variant, config: Config) -> Task:
    jit, kernel = plan.decorated.jit, plan.request.kernel
    constexprs, chosen, environment = option_roles.split_config(
        config, kernel.space.roles, {p.name for p in jit.params if p.is_constexpr},
        option_roles.option_names(plan.backend))
    defines = define_values(kernel.manifest, variant.keys[0], config)
    call = {**make_call(kernel.manifest, variant, kernel.constants), **defines}
    call.update(heuristic_values(plan.decorated, call, config))
    call.update(constexprs)
    may_spill = plan.request.keep_spilling or config in plan.baselines[variant.when]
    return Task(call, chosen, environment, may_spill, variant.signature)


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
            print(
                f"\rpack [{'#' * filled}{'.' * (24 - filled)}] {self.done}/{self.total}  "
                f"{time.monotonic() - self.started:.0f} s  {self.failed} failed\x1b[K", end="",
                file=sys.stderr, flush=True)

    def end(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def compile_tasks(tasks: list[Task], jit: Any, target: Any, backend: Any, objects: Path,
                  processes: int = 1, timeout_s: float = 300.0,
                  image: Image | None = None) -> list[Json]:
    """For every task {"digest", "metadata"}, with files below `objects`, or {"error"}; equal tasks
    are compiled once, each in a process that may die. Wants the environment of clean_environment()
    and TRITON_CACHE_DIR."""
    version = triton_version()
    first: dict[Any, int] = {}
    index = [first.setdefault(task.identity(), i) for i, task in enumerate(tasks)]
    distinct = sorted(first.values())
    results: dict[int, Json] = {}

    def run(number: int) -> Json:
        try:
            return store_result(*compile_task(tasks[distinct[number]], jit, target, backend),
                                target, version, objects, image)
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
        run_tasks([tasks[i].environment for i in distinct], run, processes, timeout_s, done)
    finally:
        progress.end()
    return [results[i] for i in index]


def _variant_json(variant: Variant, configs: list[Config], results: list[Json],
                  left_out: list[Config]) -> Json:
    own: Json = {"signature": variant.signature, "constexprs": variant.constexprs}
    if variant.when:
        own["when"] = variant.when
    own["objects"] = [{"config": c, **r} for c, r in zip(configs, results) if "digest" in r]
    failed = [{"config": c, "error": r["error"]} for c, r in zip(configs, results)
              if "digest" not in r]
    failed += [{"config": c, "error": "left out by the decorator's prune_configs_by for this key"}
               for c in left_out]
    if failed:
        own["failed"] = failed
    if not own["objects"]:
        raise PackError(f"no config compiles for the key {format_key(variant.keys[0])}; the first "
                        f"one says: {failed[0]['error']}", 1)
    return own


def make_build(plan: Plan, folder: Path) -> Json:
    """Compiles everything into the folder and returns the build."""
    objects = folder / "objects"
    objects.mkdir()
    tasks = [make_task(plan, variant, config)
             for variant, configs in zip(plan.variants, plan.configs) for config in configs]
    request = plan.request
    results = iter(
        compile_tasks(tasks, plan.decorated.jit, plan.target, plan.backend, objects,
                      request.processes, request.timeout_s, request.image))
    variants = [_variant_json(variant, configs, [next(results) for _ in configs], left_out)
                for variant, configs, left_out in zip(plan.variants, plan.configs, plan.left_out)]
    import triton
    kernel = plan.request.kernel
    configs = config_objects(plan.decorated, kernel.space.configs or plan.configs[0], plan.backend)
    return {
        "kernel": kernel.hash,
        "toolchain": {"triton": triton.__version__, **plan.request.toolchain},
        "arch": plan.request.arch, "warp_size": plan.target.warp_size, "variants": variants,
        "record": make_record(plan.decorated, kernel.hash, kernel.manifest, configs, plan.backend)
    }


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
    if (
        place.exists()
        and not (place / "build.json").exists()
        and (not place.is_dir() or any(place.iterdir()))
    ):
        raise PackError(f"{place} is there and holds no build; name another folder with --output")


def pack(request: Request, place: Path) -> Json:
    """Makes the build at `place`; returns what `pack --json` prints."""
    started = time.monotonic()
    check_place(place)
    plan = make_plan(request)
    for sentence in unfollowed(plan.decorated, plan.is_pruned):
        print(f"wavetune pack: {sentence}", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
        os.environ["TRITON_CACHE_DIR"] = request.cache or str(Path(scratch) / "cache")
        made = Path(scratch) / "build"
        made.mkdir()
        build = make_build(plan, made)
        text = canonical(build)
        if len(text.encode()) > SIZE_MAX:
            raise PackError(f"build.json would have {len(text.encode())} bytes, a server takes "
                            f"{SIZE_MAX}; pack fewer keys or configs")
        (made / "build.json").write_text(text)
        made.chmod(0o755)
        _publish(made, place)
    return {
        "kernel": request.kernel.hash, "build": digest(build), "arch": request.arch,
        "folder": str(place), "seconds": round(time.monotonic() - started, 3), "variants": [{
            "when": v.get("when", ""), "keys": plan.variants[i].keys, "objects": len(v["objects"]),
            "failed": len(v.get("failed", [])) - len(plan.left_out[i]),
            "left_out": len(plan.left_out[i])
        } for i, v in enumerate(build["variants"])]
    }
