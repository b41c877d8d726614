"""What run() of Triton's autotuner has in its variables (python/wavetune/_runtime/frames.py)."""

import pytest
import triton
from triton.runtime.autotuner import Autotuner

from wavetune._runtime import frames

MODULE = "triton.runtime.autotuner"


class Function:
    """A jit function that launches nothing and looks at who launches it."""
    cache_key, __module__ = "key", "ops"

    def __init__(self):
        def add(n, m):
            pass

        self.fn, self.seen = add, []

    def run(self, *args, **kwargs):
        own = frames.launching(self, lambda tuner: tuner.fn)
        self.seen.append((None if own is None else dict(own), frames.is_tuned()))
        if args == (0, 0):
            raise RuntimeError("it does not run")
        return args


def make(n_configs=2, **more):
    function = Function()
    configs = [triton.Config({"BLOCK": 64 << n}) for n in range(n_configs)]
    tuner = Autotuner(function, ["n", "m"], configs, ["n", "m"], None, None,
                      do_bench=lambda call, quantiles: call() or [1.0] * 3, **more)
    return tuner, function


def test_a_launch_has_its_key_arguments_and_config():
    tuner, function = make()
    tuner.run(16, 32, grid=(1,))
    *measured, (own, is_tuned) = function.seen
    assert [one for one, _ in measured] == [None, None], "while it is measured, nothing is launched"
    assert is_tuned and all(is_tuned for _, is_tuned in measured)
    assert own["self"] is tuner and own["key"][:2] == (16, 32) and own["config"] in tuner.configs
    assert (own["args"], own["kwargs"]) == ((16, 32), {"grid": (1,)})


def test_the_function_that_prunes_is_called_by_a_run_that_has_its_keywords():
    seen = []

    def prune(configs, arguments, **_):
        seen.append((dict(frames.running(tuner)), dict(frames.running_of(MODULE))))
        return configs[:1]

    tuner, _ = make(prune_configs_by={"early_config_prune": prune})
    tuner.run(16, 32, grid=(1,))
    ((own, same),) = seen
    assert own["kwargs"] == {"grid": (1,)} and own["key"][:2] == (16, 32) and own["self"] is same["self"] is tuner


def test_a_run_that_benchmarks_has_the_pruned_configs():
    tuner, _ = make()
    seen = []
    tuner._do_bench = tuner.do_bench = lambda *_, **__: seen.append(dict(frames.running_of(MODULE))) or [1.0] * 3
    tuner.run(16, 32)
    assert seen and all(own["pruned_configs"] == tuner.configs for own in seen)


def test_a_launch_that_failed_has_its_key_and_config():
    tuner, _ = make()
    tuner.run(1, 0)
    tuner.cache[tuner_key(tuner, 0, 0)] = tuner.configs[1]
    with pytest.raises(RuntimeError) as failure:
        tuner.run(0, 0)
    assert failure.value.__traceback__ is not None
    try:
        tuner.run(0, 0)
    except RuntimeError as error:
        own = frames.failed(error)
    assert own["key"][:2] == (0, 0) and own["config"] is tuner.configs[1]


def tuner_key(tuner, n, m):
    (known,) = tuner.cache
    return (n, m, *known[2:])


def test_outside_of_a_run_nothing_is_found():
    tuner, function = make(n_configs=1)
    assert not frames.running(tuner) and not frames.running_of(MODULE)
    assert not frames.failed(ValueError()) and frames.launching(function, lambda one: one) is None
    assert not frames.is_tuned()
    function.run(1, 2)
    assert function.seen == [(None, False)]
