"""Packs one kernel folder: variants for keys, every config of its space compiled, and the folder of
docs/builds.md, which is made beside its place and renamed when it is whole. Equal inputs (kernel,
keys, arch, toolchain) give an equal build.json, byte for byte.
"""

import os
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from .._canonical import Fields, Json, canonical, digest
from .._errors import PackError
from . import options as option_roles
from .artifacts import Image
from .calls import Tensor, heuristic_values, pruned, prunes
from .compiling import Task, compile_all, compile_task, store_result
from .configs import decorator_configs, decorator_space
from .decorator import check_restored, unfollowed
from .expressions import expression
from .folder import Kernel, check_fills, check_segments
from .function import check_function
from .keys import Key, format_key, order_key
from .record import config_objects, make_record
from .source import Decorated, load_function
from .spaces import Config
from .specialise import Variant, define_values, variants_of
from .target import make_backend, make_target, triton_version, uses_buffer_ops
from .terminal import Line

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

    @property
    def facts(self) -> dict[str, str]:
        """What expressions may read beside the key and the config."""
        return {"gpu_name": self.gpu_name, "arch": self.arch}


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
    for name in [name for name in os.environ if option_roles.is_compile_variable(name)]:
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
    decorated = kernel.function or load_function(kernel.source, kernel.entry, target,
                                                 request.module, kernel.root, request.torch)
    jit = decorated.jit
    check_fills(kernel.manifest["arguments"])
    check_segments(kernel)
    check_restored(decorated, kernel.manifest)
    check_function(jit, kernel.manifest,
                   {name for name, role in kernel.space.roles.items() if role != "env"},
                   kernel.constants, decorated.heuristics)
    option_roles.check_roles(kernel.space, {p.name for p in jit.params if p.is_constexpr},
                             option_roles.option_names(backend), kernel.entry)
    facts = request.facts
    configs = list(kernel.space.points([{**key, **facts} for key in keys]))
    if not configs:
        raise PackError("the conditions of the space exclude every config for the keys given")
    uses_range = target.backend == "hip" and any(
        uses_buffer_ops(version, config) for config in configs)
    # The decorator's pruning is of its space: what was stated with --space is packed as it is.
    is_pruned = prunes(decorated) and "prune_configs_by" not in request.ignored and \
        kernel.space.configs == decorator_space(decorated, backend)["configs"]
    stated = {*kernel.manifest.get("defines", {}), *kernel.constants}
    is_alone = is_pruned or not stated.issuperset(decorated.heuristics)
    variants = variants_of(jit, kernel.manifest, configs, keys, uses_range, is_alone,
                           facts)
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


def _prune(plan: Plan) -> None:
    """Moves the configs that the decorator's pruning leaves out for a key to `left_out`."""
    decorated, kernel = plan.decorated, plan.request.kernel
    points, _ = decorator_configs(decorated, plan.backend)
    for i, variant in enumerate(plan.variants):
        call = make_call(kernel.manifest, variant, kernel.constants,
                         {**variant.keys[0], **plan.request.facts})
        for name, text in kernel.manifest.get("defines", {}).items():
            if expression(text).names <= set(variant.keys[0]):
                call[name] = expression(text).evaluate(variant.keys[0])
        left = {id(one) for one in pruned(decorated, call, decorated.autotuner.configs)}
        kept = [point for config, point in zip(decorated.autotuner.configs, points)
                if id(config) in left]
        plan.left_out[i] = [config for config in plan.configs[i] if config not in kept]
        plan.configs[i] = [config for config in plan.configs[i] if config in kept]
        if any(config in plan.left_out[i] for config in plan.baselines[variant.when]):
            raise PackError(f"{decorated.place}: the default config, with which others are "
                            "compared, is left out by prune_configs_by for the key "
                            f"{format_key(variant.keys[0])}: make another one the default in "
                            "space.json, or pack all of them with --ignore prune_configs_by")


def make_call(manifest: Json, variant: Variant, constants: Fields, scope: Fields) -> Json:
    """A call that needs this variant, without what configs and heuristics give; `scope`: what
    expressions read."""
    values: Json = dict(constants)
    for argument in manifest["arguments"]:
        name, dtype = argument["name"], argument["dtype"]
        if "shape" in argument:
            shape = tuple(expression(one).evaluate(scope) for one in argument["shape"])
            values[name] = Tensor(dtype, shape, is_small="S" in variant.attributes.get(name, ""))
        elif dtype == "bool" or "float" in dtype:  # one is like any other
            values[name] = True if dtype == "bool" else 0.5
        else:
            values[name] = expression(argument["value"]).evaluate(scope)
    return values


def make_task(plan: Plan, variant: Variant, config: Config) -> Task:
    jit, kernel = plan.decorated.jit, plan.request.kernel
    constexprs, chosen, environment = option_roles.split_config(
        config, kernel.space.roles, {p.name for p in jit.params if p.is_constexpr},
        option_roles.option_names(plan.backend))
    scope = {**variant.keys[0], **plan.request.facts, **config}
    call = {**make_call(kernel.manifest, variant, kernel.constants, scope),
            **define_values(kernel.manifest, scope)}
    call.update(heuristic_values(plan.decorated, call, config), **constexprs)
    may_spill = plan.request.keep_spilling or config in plan.baselines[variant.when]
    return Task(call, chosen, environment, may_spill, variant.signature)


class _Progress:
    """A bar on a terminal. `step`: called with how many are done, and of how many."""

    def __init__(self, total: int, step: Callable[[int, int], None] | None):
        self.total, self.done, self.failed, self.also = total, 0, 0, step
        self.line, self.started = Line(), time.monotonic()

    def step(self, result: Json) -> None:
        self.done += 1
        self.failed += "error" in result
        if self.also is not None:
            self.also(self.done, self.total)
        filled = 24 * self.done // self.total
        self.line.show(f"pack [{'#' * filled}{'.' * (24 - filled)}] {self.done}/{self.total}  "
                       f"{time.monotonic() - self.started:.0f} s  {self.failed} failed")


def compile_tasks(tasks: list[Task], jit: Any, target: Any, backend: Any, objects: Path,
                  processes: int = 1, timeout_s: float = 300.0,
                  image: Image | None = None,
                  step: Callable[[int, int], None] | None = None) -> list[Json]:
    """For every task {"digest", "metadata"}, with files below `objects`, or {"error"}; equal tasks
    are compiled once. Wants the environment of clean_environment() and TRITON_CACHE_DIR."""
    version = triton_version()
    distinct: dict[Any, Task] = {}
    for task in tasks:
        distinct.setdefault(task.identity(), task)
    wanted = list(distinct.values())

    def run(number: int) -> Json:
        return store_result(*compile_task(wanted[number], jit, target, backend), target, version,
                            objects, image)

    progress = _Progress(len(wanted), step)
    try:
        results = compile_all([task.environment for task in wanted], run, processes, timeout_s,
                              progress.step)
    finally:
        progress.line.end()
    found = dict(zip(distinct, results))
    return [found[task.identity()] for task in tasks]


def _variant_json(variant: Variant, configs: list[Config], results: list[Json],
                  left_out: list[Config]) -> Json:
    objects = [{"config": c, **r} for c, r in zip(configs, results) if "digest" in r]
    failed = [{"config": c, **r} for c, r in zip(configs, results) if "error" in r]
    if not objects:
        raise PackError(f"no config compiles for the key {format_key(variant.keys[0])}; the first "
                        f"one says: {failed[0]['error']}", 1)
    failed += [{"config": c, "error": "left out by the decorator's prune_configs_by for this key"}
               for c in left_out]
    own: Json = {"signature": variant.signature, "constexprs": variant.constexprs,
                 "when": variant.when, "objects": objects, "failed": failed}
    return {name: value for name, value in own.items()
            if value or name not in ("when", "failed")}


def build_variants(plan: Plan, folder: Path,
                   step: Callable[[int, int], None] | None = None) -> list[Json]:
    """Compiles everything into the folder's objects/; the build's variants."""
    tasks = [make_task(plan, variant, config)
             for variant, configs in zip(plan.variants, plan.configs) for config in configs]
    request = plan.request
    results = iter(compile_tasks(tasks, plan.decorated.jit, plan.target, plan.backend,
                                 folder / "objects", request.processes, request.timeout_s,
                                 request.image, step))
    return [_variant_json(variant, configs, [next(results) for _ in configs], left_out)
            for variant, configs, left_out in zip(plan.variants, plan.configs, plan.left_out)]


def head_of_plan(plan: Plan) -> Json:
    """The build without its variants."""
    import triton
    request, kernel = plan.request, plan.request.kernel
    configs = config_objects(plan.decorated, kernel.space.configs or plan.configs[0], plan.backend)
    return {
        "kernel": kernel.hash, "toolchain": {"triton": triton.__version__, **request.toolchain},
        "arch": request.arch, "warp_size": plan.target.warp_size,
        "record": make_record(plan.decorated, kernel.hash, kernel.manifest, configs, plan.backend)
    }


def _publish(made: Path, place: Path) -> None:
    """Puts a whole folder into its place; an older build, moved beside `made`, goes with it."""
    if place.exists():
        place.rename(made.with_name("old"))
    made.rename(place)


def write_build(build: Json, folder: Path, hint: str = "") -> None:
    data = canonical(build).encode()
    if len(data) > SIZE_MAX:
        raise PackError(f"build.json would have {len(data)} bytes, a server takes {SIZE_MAX}{hint}")
    (folder / "build.json").write_bytes(data)


def check_place(place: Path) -> None:
    if place.exists() and not (place / "build.json").exists() and (
            not place.is_dir() or any(place.iterdir())):
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
        (made / "objects").mkdir(parents=True)
        build = {"variants": build_variants(plan, made), **head_of_plan(plan)}
        write_build(build, made, "; pack fewer keys or configs")
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
