"""In a program's PYTHONPATH: reports of demand reach their server however slow the machine is."""

import wavetune.demand

wavetune.demand.TIMEOUT_S = wavetune.demand.LAST_S = 600.0
