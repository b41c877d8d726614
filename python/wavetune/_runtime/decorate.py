"""@wavetune.autotune(…) in the place of @triton.autotune(…) or @triton_dejavu.autotune(…)."""

from __future__ import annotations

import inspect

from .. import auto  # noqa: F401


def autotune(*args, on_miss: str | None = None, **kwargs):
    """The decorator of Triton, or of triton_dejavu where an argument is one that only it knows.
    `on_miss`: tune, first or nearest, for this function in the place of $WAVETUNE_ON_MISS."""
    from .settings import ON_MISS
    if on_miss is not None and on_miss not in ON_MISS:
        raise ValueError(f"on_miss={on_miss!r} is none of {', '.join(ON_MISS)}")
    decorate = _decorator(args, kwargs)(*args, **kwargs)
    if on_miss is None:
        return decorate

    def decorated(function):
        tuner = decorate(function)
        from .log import quietly
        with quietly("on_miss of a kernel"):
            from .restore import cache_of
            cache = cache_of(tuner)
            if cache is not None:
                cache.on_miss = on_miss
        return tuner

    return decorated


def _decorator(args, kwargs):
    """Triton's autotune, or triton_dejavu's."""
    import triton
    try:
        inspect.signature(triton.autotune).bind(*args, **kwargs)
        return triton.autotune
    except TypeError:
        pass
    try:
        from triton_dejavu import autotune as theirs
        inspect.signature(theirs).bind(*args, **kwargs)
        return theirs
    except (ImportError, TypeError):
        return triton.autotune  # which says what is wrong with the arguments
