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
sent = 0  # files, and captures
dropped = 0  # of these, what did not fit into the queue
captures = 0  # launches that were recorded
captures_lost = 0  # launches that were to be recorded and were not
capture_ms = 0.0  # of the program's time, recording them
lost_ms = 0.0  # of the program's time, waiting for the server

_NAMES = tuple(name for name, value in dict(globals()).items() if type(value) in (int, float))
# a report's most
_REPORTED = {"hits": 10**5, "misses": 10**5, "unfit": 10**5, "failures": 10**5, "saved_ms": 1e9}
_taken: dict[str, float] = {}


def is_pending() -> bool:
    """Whether take() would find something."""
    return any(globals()[name] > _taken.get(name, 0) for name in _REPORTED)


def take() -> dict[str, float]:
    """What was counted since the last call, of what the server adds up."""
    found = {}
    for name, most in _REPORTED.items():
        more = min(round(globals()[name] - _taken.get(name, 0), 3), most)
        if more > 0:  # a hit may turn out to be none after it was sent
            found[name] = more
            _taken[name] = _taken.get(name, 0) + more
    return found


def give_back(found: dict[str, float]) -> None:
    """What take() found was not sent."""
    for name, more in found.items():
        _taken[name] = _taken.get(name, 0) - more


def snapshot() -> dict[str, float]:
    return {name: globals()[name] for name in _NAMES}


def reset() -> None:
    """In a forked child, which counts anew."""
    for name in _NAMES:
        globals()[name] = type(globals()[name])()
    _taken.clear()
