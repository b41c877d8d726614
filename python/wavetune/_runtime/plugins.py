"""Gives vLLM, SGLang and AITER tables in the place where each of them looks one up, and reports
what neither they nor we have.

A program looks a table up in one function of one module, which is wrapped when the module has been
imported: it answers with our rows over those of the program's own table. What launches the kernel
knows M (for Mamba: batch times heads), and is wrapped where there is a server to report to: where a
table is missing, or its nearest row is more than FAR times away, the power of two nearest to M is
reported once. The programs use a row for the nearest M, and their own tuners take steps of at most
2: a row for each power of two is what such a table lacks.

A program that must not choose by the size of a batch (batch-invariant, deterministic) gets no
table from us. Nothing is done while torch.compile traces: SGLang then looks up nothing either.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import sys
from typing import Any, Callable, Iterator, NamedTuple, Sequence

from .._canonical import Named
from . import entries
from .log import log, quietly
from .patching import is_wrapped, when_there
from .tables import Tables, bucket

FAR = 2
SEEN_MAX = 16384
GEMM = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
NOT_FOUND = "Config file not found"  # in each program's line for a table that is missing
AITER = "aiter.ops.triton.utils.gemm_config_utils"
AITER_ROWS = (1, 4, *(8 << i for i in range(11)))


class Launch(NamedTuple):
    table: tuple[Any, ...]  # the arguments of its look-up
    number: int  # of the row that it would need, 0: none
    more: Named = {}  # what a kernel's key may have beside


class Lookup(NamedTuple):
    """How a program finds a table."""

    format: str
    kind: str  # of tables, in "exports" of kernels
    modules: Sequence[str]  # where its releases have it, the newest first
    function: str
    name: Callable[[Any, Named], str]  # of the file, by the module and the arguments
    needed: Sequence[str]  # members of each row
    launchers: Sequence[str]  # functions that know the number; the first that is there counts
    shapes: Callable[..., Any]  # by which launches differ; has their parameters, as the next
    launch: Callable[..., Launch]
    number: str = "M"  # in "exports": what rows are for


# The names of files.

def _device(module: Any) -> str:
    name = getattr(module, "get_device_name_as_file_name", None) or \
        getattr(module, "get_device_name", None) or module.current_platform.get_device_name
    return name().replace(" ", "_")


def _w8a8_name(module: Any, given: Named, separator: str = ",") -> str:
    return f"N={given['N']},K={given['K']},device_name={_device(module)},dtype=fp8_w8a8," \
        f"block_shape=[{given['block_n']}{separator}{given['block_k']}].json"


def _sglang_w8a8_name(module: Any, given: Named) -> str:
    return _w8a8_name(module, given, ", ")


def _moe_name(module: Any, given: Named) -> str:
    """By the module's own function, whose parameters differ by release."""
    known = {**given, "block_shape": [given["block_n"], given["block_k"]]}
    wanted = inspect.signature(module.get_config_file_name).parameters
    return module.get_config_file_name(**{name: known[name] for name in wanted})


def _sglang_moe_name(module: Any, given: Named) -> str:
    """Of a table for this Triton: rows for another one are not taken."""
    version = module.triton.__version__.partition("+")[0].replace(".", "_")
    return os.path.join("configs", f"triton_{version}", _moe_name(module, given))


def _ssm_name(module: Any, given: Named) -> str:
    return module.get_ssm_config_file_name(given["headdim"], given["dstate"],
                                           _state(given["cache_dtype"]), _device(module))


def _state(dtype: str) -> str:
    """Of Mamba's tables: the kernel depends on the width alone."""
    return "float16" if dtype == "bfloat16" else dtype


# What a launch needs: first what tells it from those that were seen, as cheaply as can be.

def _w8a8_shapes(A, B, *_: Any, **__: Any) -> Any:
    return A.shape, B.shape


def _moe_shapes(w1_shape, w2_shape, top_k, dtype, M, *_: Any, **__: Any) -> Any:
    return w2_shape, dtype, M


def _ssm_shapes(state, x, dt, A, B, *_: Any, **__: Any) -> Any:
    return state.shape, x.shape, B.shape


def _w8a8_launch(A, B, As, Bs, block_size, *_: Any, **__: Any) -> Launch:
    return Launch((*B.shape, block_size[0], block_size[1]),
                  _step(A.numel() // A.shape[-1]))


def _moe_launch(w1_shape, w2_shape, top_k, dtype, M, block_shape=None, **__: Any) -> Launch:
    n = w2_shape[2] * 2 if dtype == "int4_w4a16" else w2_shape[2]
    block = block_shape or (0, 0)
    return Launch((w2_shape[0], n, dtype, block[0], block[1]), _step(M),
                  {"K": w1_shape[2], "top_k": top_k})


def _sglang_moe_launch(w1_shape, w2_shape, top_k, dtype, M, is_marlin=False, block_shape=None,
                       per_channel_quant=False, *_: Any, **__: Any) -> Launch:
    block = block_shape or (0, 0)
    return Launch((w2_shape[0], w2_shape[2], dtype, block[0], block[1], per_channel_quant, False),
                  _step(M), {"K": w1_shape[2], "top_k": top_k})


def _ssm_launch(state, x, dt, A, B, *_: Any, cu_seqlens=None, **__: Any) -> Launch:
    nheads, headdim, dstate = state.shape[1:] if len(state.shape) == 4 else (1, *state.shape[1:])
    batch = x.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
    return Launch((headdim, dstate, str(state.dtype).replace("torch.", "")), _step(batch) * nheads,
                  {"nheads": nheads, "ngroups": B.shape[1] if len(B.shape) == 3 else 1,
                   "batch": _step(batch)})


LOOKUPS = (
    Lookup("vllm-w8a8", "vllm-w8a8", ("vllm.model_executor.layers.quantization.utils.fp8_utils",),
           "get_w8a8_block_fp8_configs", _w8a8_name, GEMM, ("w8a8_triton_block_scaled_mm",
                                                            "w8a8_block_fp8_matmul"),
           _w8a8_shapes, _w8a8_launch),
    Lookup("vllm-moe", "vllm-moe", ("vllm.model_executor.layers.fused_moe.fused_moe",),
           "get_moe_configs", _moe_name, GEMM, ("try_get_optimal_moe_config",),
           _moe_shapes, _moe_launch),
    Lookup("vllm-moe", "vllm-ssm", ("vllm.model_executor.layers.mamba.ops.mamba_ssm",),
           "get_ssm_configs", _ssm_name, ("BLOCK_SIZE_M", "num_warps"),
           ("selective_state_update",), _ssm_shapes, _ssm_launch, "batch"),
    Lookup("sglang-w8a8", "sglang-w8a8", ("sglang.kernels.ops.gemm.fp8_kernel",
                                          "sglang.srt.layers.quantization.fp8_kernel"),
           "get_w8a8_block_fp8_configs", _sglang_w8a8_name, GEMM,
           ("w8a8_block_fp8_matmul_triton", "w8a8_block_fp8_matmul"), _w8a8_shapes, _w8a8_launch),
    Lookup("sglang-moe", "sglang-moe",
           ("sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config",
            "sglang.srt.layers.moe.fused_moe_triton.fused_moe_triton_config"),
           "get_moe_configs", _sglang_moe_name, GEMM, ("try_get_optimal_moe_config",),
           _moe_shapes, _sglang_moe_launch),
)
_BY_MODULE = {module: lookup for lookup in LOOKUPS for module in lookup.modules}


class Plugins:
    """`tables`: None where none are named; `program`: has the sender of misses, if any."""

    def __init__(self, tables: Tables | None, program: Any):
        self.tables, self.program = tables, program
        self._known: dict[Any, frozenset[int]] = {}  # numbers of rows, by look-up and arguments
        self._seen: set[Any] = set()  # launches for which a row was looked for

    def patch(self, module: Any) -> None:
        with quietly(f"the tables of {module.__name__}"):
            lookup = _BY_MODULE.get(module.__name__)
            format_ = lookup.format if lookup is not None else "aiter-triton"
            for folder in self.tables.folders[format_] if self.tables is not None else ():
                folder.note_switches()
            if lookup is None:
                self._patch_aiter(module)
                return
            if self._replace(module, lookup, (lookup.function,), self._answering) and \
                    self.program.sender is not None:
                self._replace(module, lookup, lookup.launchers, self._watching)

    def _replace(self, module: Any, lookup: Lookup, names: Sequence[str],
                 make: Callable[..., Any]) -> bool:
        """Wraps the first function that is there, below its cache, where it has one."""
        name = next((name for name in names if hasattr(module, name)), None)
        if name is None:
            of = "misses of its tables are not reported" if names is lookup.launchers else \
                "its tables are left alone"
            log(f"{module.__name__} has no {' or '.join(names)}: {of}")
            return False
        function = getattr(module, name)
        if not is_wrapped(function):
            is_cached = hasattr(function, "cache_info")
            inner = function.__wrapped__ if is_cached else function
            made = functools.wraps(inner)(make(module, lookup, inner, _is_tracing()))
            _put(module, name, functools.lru_cache(maxsize=None)(made) if is_cached else made)
        return True

    # Answering.

    def _answering(self, module: Any, lookup: Lookup, function: Callable[..., Any],
                   is_tracing: Callable[[], bool]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        def look_up(*args: Any, **kwargs: Any) -> Any:
            if is_tracing():
                return function(*args, **kwargs)
            ours: Named = {}
            given: Named = {}
            with quietly(f"a look-up of {lookup.function}"):
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                given = bound.arguments
                if _is_fixed(module):
                    given = {}
                elif self.tables is not None and self.tables.folders[lookup.format]:
                    ours = self._ours(module, lookup, given)
            with _without_warning(module) if ours else contextlib.nullcontext():
                found = function(*args, **kwargs)
            if given:
                with quietly(f"a table of {lookup.function}"):
                    found = self._merged(lookup, given, ours, found)
            return found
        return look_up

    def _ours(self, module: Any, lookup: Lookup, given: Named) -> Named:
        rows = self.tables.rows(lookup.format, lookup.name(module, given), lookup.needed)
        if lookup.kind == "sglang-w8a8":  # its kernel takes parts of blocks on NVIDIA's alone
            block_k, parts = given["block_k"], getattr(module, "_is_cuda", False)
            short = [m for m, config in rows.items() if config["BLOCK_SIZE_K"] < block_k and
                     not (parts and block_k % config["BLOCK_SIZE_K"] == 0)]
            if short:
                log(f"{lookup.name(module, given)}: the rows {short} are not used, because "
                    f"BLOCK_SIZE_K is below {block_k}")
            rows = {m: config for m, config in rows.items() if m not in short}
        return rows

    def _merged(self, lookup: Lookup, given: Named, ours: Named, found: Any) -> Any:
        merged = dict(sorted({**(found or {}), **ours}.items())) if ours else found
        table = tuple(given.values())
        self._known[lookup.kind, table] = frozenset(merged or ())
        if ours:
            log(f"{lookup.function}{table}: {len(ours)} rows of WAVETUNE_TABLES, "
                f"{len(merged) - len(ours)} of the program's own")
        return merged

    # Misses.

    def _watching(self, module: Any, lookup: Lookup, function: Callable[..., Any],
                  is_tracing: Callable[[], bool]) -> Callable[..., Any]:
        names = list(inspect.signature(getattr(module, lookup.function)).parameters)
        watch, shapes_of = quietly(f"a launch with a table of {lookup.function}"), lookup.shapes
        noted: set[Any] = set()

        def launch(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            if not is_tracing():
                with watch:
                    shapes = shapes_of(*args, **kwargs)
                    if shapes not in noted and len(noted) < SEEN_MAX:
                        noted.add(shapes)
                        self._note(module, lookup, names, lookup.launch(*args, **kwargs))
            return found
        return launch

    def _note(self, module: Any, lookup: Lookup, names: Sequence[str], launch: Launch) -> None:
        """After the program looked the table up. `names`: of that look-up's arguments."""
        step = launch.number
        seen = (lookup.kind, launch.table[:len(names)], step)
        if seen in self._seen or step == 0:
            return
        numbers = self._known.get(seen[:2])
        if numbers is None:
            return  # this launch asked for no table
        self._seen.add(seen)
        if any(step <= FAR * number and number <= FAR * step for number in numbers):
            return
        row = {**dict(zip(names, launch.table)), lookup.number: step}
        if "block_n" in row:
            block = [row["block_n"], row["block_k"]]
            row = {"dtype": "fp8_w8a8", **row, "block_shape": block if all(block) else None}
        if "cache_dtype" in row:
            row["cache_dtype"] = _state(row["cache_dtype"])
        self._missed(lookup.kind, module.__name__, f"{lookup.function}{seen[1]}", row, launch.more)

    def _missed(self, kind: str, module: str, table: str, row: Named, launch: Named) -> None:
        """`table`: for people, with the last member of the row."""
        arch = self.program.settings.environment().get("arch")
        items = list(entries.items(kind, module, row, launch, arch))
        for item in items:
            self.program.sender.wanted(item)
        names = ", ".join(sorted({item["kernel"] for item in items})) or "no kernel that is known"
        log(f"miss: {table} has no row near {row.get('M', row.get('batch'))}: reported for {names}")

    # AITER: what chooses the row knows M.

    def _patch_aiter(self, module: Any) -> None:
        function = getattr(module, "get_gemm_config", None)
        if function is None:
            log(f"{AITER} has no get_gemm_config: its tables are left alone")
            return
        if is_wrapped(function):
            return
        is_tracing, chosen = _is_tracing(), functools.lru_cache(maxsize=SEEN_MAX)(self._aiter_row)

        @functools.wraps(function)
        def get_gemm_config(*args: Any, **kwargs: Any) -> Any:
            asked = None if is_tracing() else _aiter_arguments(*args, **kwargs)
            if asked is not None:
                with quietly("a look-up of get_gemm_config"):
                    config = chosen(*asked)
                    if config is not None:
                        return dict(config), True
            found = function(*args, **kwargs)
            if asked is not None and self.program.sender is not None:
                with quietly("a launch with a table of get_gemm_config"):
                    if not found[1]:  # whether the shape was tuned
                        self._aiter_missed(*asked)
            return found

        _put(module, "get_gemm_config", get_gemm_config)

    def _aiter_row(self, config_name: str, m: int, n: int, k: int) -> Named | None:
        if self.tables is None:
            return None
        arch = self.program.settings.environment().get("arch", "")
        name = f"{config_name}-N={n}-K={k}.json"
        folder = config_name.lower().replace("-", "_")
        places = (f"{arch}/triton/gemm/{folder}/{name}", f"gemm/{arch}-{name}", f"{arch}-{name}")
        for place in places:
            rows = self.tables.buckets(place, GEMM[:3])
            if rows:
                return bucket(rows, m)
        return None

    def _aiter_missed(self, config_name: str, m: int, n: int, k: int) -> None:
        """Rows are for ranges, up to the numbers that AITER looks for."""
        most = next((most for most in AITER_ROWS if m <= most), None)
        seen = (config_name, n, k, most)
        if most is not None and seen not in self._seen and len(self._seen) < SEEN_MAX:
            self._seen.add(seen)
            self._missed("aiter-triton", AITER, f"get_gemm_config{seen[:3]}",
                         {"name": config_name, "N": n, "K": k, "M": most}, {})


def _aiter_arguments(config_name: Any = None, M: Any = None, N: Any = None, K: Any = None,
                     *more: Any, **named: Any) -> tuple[str, int, int, int] | None:
    """None: it is not asked for a shape, or has ranges of M or a file of its own."""
    is_known = isinstance(config_name, str) and not more and not named
    return (config_name, M, N, K) if is_known and {type(M), type(N), type(K)} == {int} else None


def _step(number: int) -> int:
    """The nearest power of two, by the quotient; 0 for what is no size of a batch."""
    if number < 1:
        return 0
    floor = 1 << number.bit_length() - 1
    return floor if number * number <= 2 * floor * floor else 2 * floor


def _is_tracing() -> Callable[[], bool]:
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or bool


def _is_fixed(module: Any) -> bool:
    """Whether the program was told to compute a row of a batch alike in each batch."""
    context = sys.modules.get("sglang.srt.runtime_context")
    asks = (lambda: module.envs.VLLM_BATCH_INVARIANT, lambda: module.vllm_is_batch_invariant(),
            lambda: context.get_exec().deterministic.enable_deterministic_inference,
            lambda: module.get_global_server_args().enable_deterministic_inference)
    for ask in asks:
        with contextlib.suppress(Exception):  # other releases, or no server in this process
            if ask():
                return True
    return False


@contextlib.contextmanager
def _without_warning(module: Any) -> Iterator[None]:
    """The program's line for a table that is missing would be wrong where we have it."""
    logger = getattr(module, "logger", None)

    def is_other(record: logging.LogRecord) -> bool:
        return NOT_FOUND not in str(record.msg)

    if not isinstance(logger, logging.Logger):
        yield
        return
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


def _put(module: Any, name: str, made: Any) -> None:
    """Also where other modules of the package have imported the function already."""
    original = getattr(module, name)
    made.is_of_wavetune = True
    package = module.__name__.partition(".")[0] + "."
    for other in [one for name, one in list(sys.modules.items()) if name.startswith(package)]:
        for own in [own for own, value in list(vars(other).items()) if value is original]:
            setattr(other, own, made)


_plugins: Plugins | None = None


def start(program: Any) -> None:
    """Wraps what looks tables up, where it is, or when it will be imported."""
    global _plugins
    own = program.settings
    tables = Tables(own.tables, own.environment) if own.tables else None
    _plugins = Plugins(tables, program)
    when_there([*_BY_MODULE, AITER], _plugins.patch)


def called(package: str) -> None:
    """The package's own loader called: says which tables its release does not look up as known."""
    if _plugins is None:
        return
    with quietly(f"looking for tables of {package}"):
        roots = list(getattr(sys.modules.get(package), "__path__", ()))
        for lookup in LOOKUPS:
            places = [name.split(".")[1:] for name in lookup.modules
                      if name.startswith(f"{package}.")]
            if roots and places and not any(os.path.exists(os.path.join(root, *place) + ".py")
                                  for root in roots for place in places):
                log(f"this {package} has no {' or '.join(lookup.modules)}: its tables of the "
                    f"format {lookup.format} are left alone")
