"""Function records (common/builds/function_record.h): hashes by which Triton's own autotune cache
and triton-dejavu find their files, of the installed Triton, of the function's text and line, and of
the printed configs. They are taken here, where Triton and the file are.
"""

import hashlib
import inspect
import re
import textwrap
from typing import Any

from .._canonical import Fields, Json
from .._runtime.closure import closure
from .artifacts import installed_key
from .source import Decorated


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def dejavu_param_text(arguments: Fields, search_max_n: int | None) -> str:
    """What dejavu hashes as `autotune_config-…` (autotuner.py, _get_param_hash)."""
    a = arguments
    return (f"autotuner params: warmup {a['warmup']} rep {a['rep']} cuda_graphs "
            f"{a['use_cuda_graph']} "
            f"quantiles {a['quantiles']} use_bo {a['use_bo']} use_random {a['use_random_search']} "
            f"max_search_n {search_max_n} max_search_t {a['search_max_search_t']}")


def dejavu_source(raw: str) -> str:
    """The function's text from `def` on, as JITFunction.src of the versions that dejavu knows."""
    text = textwrap.dedent(raw)
    found = re.search(r"^def\s+\w+\s*\(", text, re.MULTILINE)
    return text[found.start():] if found else text


def dejavu_hashes(arguments: Fields, search_max_n: int | None, raw: str, keys: list[str],
                  configs: list[str]) -> dict[str, str]:
    """The four hashes of the folder: P, C, K and G of the layout dejavu_0.7."""
    return {"autotune_config": _sha256(dejavu_param_text(arguments, search_max_n)),
            "code_version": dejavu_code_version(raw),
            "tune_features": _sha256("|".join(keys)),
            "kernel_configs": _sha256("|" + "".join(f"{config}|" for config in configs))}


def dejavu_code_version(raw: str) -> str:
    return _sha256(_sha256(dejavu_source(raw)))


def plain(value: Any) -> Any:
    """A decorator's argument as JSON; what is no value is named by its text's kind."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return f"<{type(value).__name__}>"


def plains(values: Fields) -> Json:
    return {name: plain(value) for name, value in values.items()}


def triton_autotune(tuner: Any) -> Json:
    """The arguments of Triton's decorator."""
    return {"decorator": "triton", **plains({
        "warmup": getattr(tuner, "num_warmups", None), "rep": getattr(tuner, "num_reps", None),
        "use_cuda_graph": getattr(tuner, "use_cuda_graph", False),
        "cache_results": getattr(tuner, "cache_results", False),
        "reset_to_zero": getattr(tuner, "reset_to_zero", []),
        "restore_value": getattr(tuner, "restore_value", []),
        # With either Triton's own cache of autotuning cannot be filled from outside: it keeps none,
        # or for a list of configs that depends on the arguments.
        "pre_hooks": any(config.pre_hook is not None for config in tuner.configs),
        "prunes": tuner.early_config_prune is not None or tuner.perf_model is not None})}


def _autotune(decorated: Decorated) -> Json | None:
    tuner = decorated.autotuner
    if not decorated.is_dejavu:
        return tuner and triton_autotune(tuner)
    names = ("warmup", "rep", "use_cuda_graph", "quantiles", "use_bo", "use_random_search",
             "search_max_search_t", "search_max_share", "ignore_dtypes", "custom_data_storage",
             "reset_to_zero", "restore_value")
    return {"decorator": "triton_dejavu", **plains({name: tuner.arguments[name] for name in names}),
            "search_max_n": tuner.search_max_n()}


def triton_record(backend: Any) -> dict[str, str]:
    import triton
    return {"version": triton.__version__, "key": installed_key(), "backend_hash": backend.hash()}


def function_members(jit: Any) -> Json:
    """The member "function" of a record."""
    path, own = inspect.getsourcefile(jit.fn) or "", closure(jit)
    return {
        "module": jit.__module__, "name": jit.__name__, "qualname": jit.fn.__qualname__,
        "signature": str(jit), "file": path.rpartition("/")[2], "line": jit.starting_line_number,
        "cache_key": jit.cache_key, **({"closure": own} if own else {}),
        "source_sha256": _sha256(dejavu_source(inspect.getsource(jit.fn)))
    }


def tuning_key(names: list[str], manifest: Fields) -> list[str]:
    """What each of the decorator's names has as its value: a member of the key, or an
    expression."""
    values = {a["name"]: str(a["value"]) for a in manifest["arguments"] if "value" in a}
    return [{**manifest.get("defines", {}), **values}.get(name, name) for name in names]


def make_record(decorated: Decorated, kernel_hash: str, manifest: Fields,
                configs: list[Any], backend: Any) -> Json:
    """`configs`: triton.Config objects of the decorator, or of the space."""
    jit, tuner = decorated.jit, decorated.autotuner
    keys = list(tuner.keys) if tuner is not None else list(manifest["key"])
    strings = list(map(str, configs))
    record = {
        "kernel": kernel_hash, "name": manifest["name"], "triton": triton_record(backend),
        "function": function_members(jit), "key_names": keys,
        "tuning_key": tuning_key(keys, manifest) if tuner is not None else keys,
        "argument_dtypes": [f"torch.{a['dtype']}" for a in manifest["arguments"] if "shape" in a],
        "configs": strings, "autotune": _autotune(decorated)}
    if decorated.is_dejavu:
        arguments, n = tuner.arguments, tuner.search_max_n()
        record["dejavu"] = {
            "layout": "dejavu_0.7", "search_parameters": dejavu_param_text(arguments, n),
            **dejavu_hashes(arguments, n, inspect.getsource(jit.fn), keys, strings),
            **plains({name: arguments[name] for name in (
                "quantiles", "warmup", "rep", "use_cuda_graph", "ignore_dtypes")})
        }
    return record


def config_objects(decorated: Decorated, space_configs: list[Fields],
                   backend: Any) -> list[Any]:
    """The decorator's configs, or those of the space with the back end's defaults, as compiled."""
    import triton
    if decorated.autotuner is not None:
        return list(decorated.autotuner.configs)
    fixed = ("num_warps", "num_stages", "num_ctas", "maxnreg")
    defaults = {n: v for n, v in vars(backend.parse_options({})).items() if n in fixed}
    return [triton.Config({n: v for n, v in config.items() if n not in fixed},
                          **{**defaults, **{n: v for n, v in config.items() if n in fixed}})
            for config in space_configs]
