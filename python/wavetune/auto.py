"""`import wavetune.auto`: Triton's autotuners start tuned, those that were made before and those
that are made later.

Without WAVETUNE_URL, WAVETUNE_CACHE, WAVETUNE_TABLES and WAVETUNE_CAPTURE_TO nothing happens, and
nothing else is imported.
"""

from .entry import is_on

if is_on():
    from ._runtime.log import quietly
    with quietly("starting"):
        from ._runtime.program import start
        start()
