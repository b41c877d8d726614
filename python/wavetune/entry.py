"""Entry points of the package: torch.backends and vllm.general_plugins. Each may be called several times, in any process."""

import os

VARIABLES = ("WAVETUNE_URL", "WAVETUNE_CACHE", "WAVETUNE_CAPTURE_TO")


def is_on() -> bool:
    """Whether a variable says that programs are to start tuned."""
    for name in VARIABLES:
        if os.environ.get(name):
            return True
    return False


def torch_backend() -> None:
    """`import torch` calls this."""
    if is_on():
        from . import auto  # noqa: F401


def vllm_plugin() -> None:
    """vLLM calls this in each of its processes, before it loads a model."""
    if is_on():
        from . import auto  # noqa: F401
