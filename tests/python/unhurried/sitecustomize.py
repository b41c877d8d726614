"""In a program's PYTHONPATH: reports of demand reach their server however slow the machine is."""

import wavetune._runtime.wire
import wavetune.demand

wavetune._runtime.wire.BACKGROUND_S = wavetune.demand.LAST_S = 600.0
