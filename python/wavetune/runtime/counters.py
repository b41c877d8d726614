"""What was counted in this process: plain integers, which threads may lose a few of."""

from __future__ import annotations

hits = 0  # launches of a new key that found a choice
misses = 0
unfit = 0  # choices that were none of the program's own configs, or several
saved_ms = 0.0  # of tuning, as far as choices state what it took
requests = 0
failures = 0  # requests without an answer, and surprises in our own code
groups = 0  # compiled kernels that came from the server
refused = 0  # files from the server that were not what they should be
sent = 0  # pieces of evidence, and files
dropped = 0  # of these, what did not fit into the queue
lost_ms = 0.0  # of the program's time, waiting for the server

_NAMES = ("hits", "misses", "unfit", "saved_ms", "requests", "failures", "groups", "refused", "sent", "dropped", "lost_ms")


def snapshot() -> dict[str, float]:
    return {name: globals()[name] for name in _NAMES}


def reset() -> None:
    """In a forked child, which counts anew."""
    for name in _NAMES:
        globals()[name] = type(globals()[name])()
