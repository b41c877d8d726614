"""What an autotune decorator asks for besides its configs and its key: followed, or refused before
anything is compiled, or named in a note on stderr, so that a build never does less without a word.
"""

import inspect
from typing import Any, Collection, Mapping

from .._canonical import Fields, Json
from .._errors import PackError
from . import dejavu
from .source import Decorated
from .stubs import Stub

IGNORABLE = ("prune_configs_by", "pre_hook", "post_hook")  # what --ignore takes
_MEASURING = ("warmup", "rep", "use_cuda_graph", "do_bench", "quantiles", "use_bo",
              "use_random_search")


def _prunes(pruning: Any) -> bool:
    """top_k alone prunes nothing."""
    return bool(pruning) and any(
        pruning.get(name) is not None for name in ("early_config_prune", "perf_model"))


def _of_dejavu(tuner: dejavu.Autotuner) -> Json:
    defaults = {p.name: p.default for p in inspect.signature(dejavu.autotune).parameters.values()}
    stated = {name: value for name, value in tuner.arguments.items()
              if not (type(value) is type(defaults[name]) and value == defaults[name])}
    if not _prunes(stated.get("prune_configs_by")):
        stated.pop("prune_configs_by", None)
    return stated


def _of_triton(tuner: Any) -> Json:
    timing = {"warmup": tuner.num_warmups, "rep": tuner.num_reps,
              "use_cuda_graph": tuner.use_cuda_graph or None}
    stated = {name: value for name, value in timing.items() if value is not None}
    # Triton puts functions of its own there when it is given one of the three, or (before 3.4)
    # nothing.
    bench = vars(tuner).get("_do_bench", vars(tuner).get("do_bench"))
    if bench is not None and not stated and not isinstance(bench, Stub):
        stated["do_bench"] = bench
    if tuner.early_config_prune is not None or tuner.perf_model is not None:
        stated["prune_configs_by"] = True
    for hook in ("pre_hook", "post_hook"):
        if getattr(tuner, f"user_defined_{hook}"):
            stated[hook] = getattr(tuner, hook)
    return {**stated, "reset_to_zero": tuner.reset_to_zero, "restore_value": tuner.restore_value}


def stated_arguments(decorated: Decorated) -> Json:
    """The decorator's arguments that differ from their defaults, but for configs and key."""
    if decorated.autotuner is None:
        return {}
    return _of_dejavu(decorated.autotuner) if decorated.is_dejavu else _of_triton(
        decorated.autotuner)


def refuse_unfollowed(decorated: Decorated, ignored: Collection[str]) -> None:
    """What agents cannot do, unless --ignore names it. (Pruning is evaluated for each key.)"""
    stated, name = stated_arguments(decorated), decorated.jit.__name__
    for hook, when in (("pre_hook", "before"), ("post_hook", "after")):
        if hook in stated and hook not in ignored:
            raise PackError(f"{decorated.place}: the autotune decorator of {name} has a {hook}, "
                            f"which runs {when} each launch that it measures and which agents "
                            "cannot call: if it only resets buffers, write :readwrite and a fill "
                            f"behind them in --signature and add --ignore {hook}")


def _members(decorated: Decorated, argument: str) -> list[str]:
    return list(stated_arguments(decorated).get(argument) or [])


def state_restored(decorated: Decorated, arguments: Mapping[str, Json]) -> None:
    """Buffers that the decorator resets or restores are readwrite, those that it resets filled with
    zeros, where --signature says nothing else: an agent then does the same."""
    for argument in ("reset_to_zero", "restore_value"):
        for name in _members(decorated, argument):
            own = arguments.get(name, {})
            if "shape" in own and own["access"] is None:
                own["access"] = "readwrite"
            if "shape" in own and own["access"] == "readwrite" and argument == "reset_to_zero":
                own.setdefault("fill", "zeros")


def check_restored(decorated: Decorated, manifest: Fields) -> None:
    """A manifest with another access measures something else than the decorator does."""
    arguments = {argument["name"]: argument for argument in manifest["arguments"]}
    parameters = {parameter.name for parameter in decorated.jit.params}
    for listed in ("reset_to_zero", "restore_value"):
        for name in _members(decorated, listed):
            where = f"{decorated.place}: {listed} of {decorated.jit.__name__} lists {name}"
            own = arguments.get(name)
            if name not in parameters or (own is not None and "shape" not in own):
                raise PackError(f"{where}, which is no buffer of the function; take it off the "
                                "list")
            if own is None:  # a pointer that is None
                continue
            if own.get("access") != "readwrite":
                raise PackError(f"{where}, so what it holds before a launch matters, and its "
                                f"access is {own.get('access')}: make it readwrite, or take it off "
                                "the list")
            if listed == "reset_to_zero" and own.get("fill") != "zeros":
                raise PackError(f"{where}, so it holds zeros before a launch, and its fill is "
                                f"{own.get('fill', 'normal')}: make it zeros, or take it off the "
                                "list")


def _and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def unfollowed(decorated: Decorated, is_pruned: bool) -> list[str]:
    """A sentence for all that a build leaves out although it may change the winner."""
    stated, name = stated_arguments(decorated), decorated.jit.__name__
    is_left_out = "" if decorated.is_dejavu else \
        f", and the format triton leaves {name} out (docs/formats.md)"
    sentences = []
    if "prune_configs_by" in stated and not is_pruned:
        sentences.append(f"prune_configs_by of {name} is not run: every config of the space is "
                         f"packed and measured{is_left_out}")
    for hook in ("pre_hook", "post_hook"):
        if hook in stated:
            sentences.append(f"the {hook} of {name}'s autotune decorator is not called when agents "
                             "measure")
    configs = decorated.autotuner.configs if decorated.autotuner is not None else []
    if any(getattr(config, "pre_hook", None) is not None for config in configs):
        sentences.append(f"configs of {name} have a pre_hook, which is not called when agents "
                         f"measure{is_left_out}")
    if any(getattr(config, "ir_override", None) for config in configs):
        sentences.append(f"configs of {name} have an ir_override, which is not what is compiled "
                         "here")
    measuring = [argument for argument in _MEASURING if argument in stated]
    if measuring:
        sentences.append(f"{_and(measuring)} of {name}'s autotune decorator "
                         f"{'is' if len(measuring) == 1 else 'are'} not followed: agents measure "
                         "every config, launch by launch, until their order is known "
                         "(docs/measurement.md)")
    return [f"{decorated.place}: {sentence}" for sentence in sentences]
