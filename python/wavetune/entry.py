"""Entry points of the package: torch.backends, vllm.general_plugins and sglang.srt.plugins, each of
which may be called several times, in any process; and the scripts of the wheel that carries
programs.
"""

import os
import sys

VARIABLES = ("WAVETUNE_URL", "WAVETUNE_CACHE", "WAVETUNE_CAPTURE_TO", "WAVETUNE_TABLES")


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
    _plugin("vllm")


def sglang_plugin() -> None:
    """SGLang calls this at the beginning of each of its processes."""
    _plugin("sglang")


def _plugin(package: str) -> None:
    if is_on():
        from . import auto  # noqa: F401
        from ._runtime import plugins
        plugins.called(package)


def client() -> None:
    """The script `wavetune`: the C program, which shares with this package the name alone."""
    _execute("wavetune")


def agent() -> None:
    """The script `wavetune-agent`."""
    _execute("wavetune-agent")


def _execute(name: str) -> None:
    from ._binaries import FOLDER
    path = os.path.join(FOLDER, name)  # what $PATH names may be this script again
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: {path} cannot be executed: {error.strerror}; install the wheel that "
                 "carries it, or take another wavetune out of PYTHONPATH")
