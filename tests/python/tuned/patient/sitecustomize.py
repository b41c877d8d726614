"""In a program's PYTHONPATH: it waits $PATIENT_S for its server and at its end, however slow the machine of the tests is.
$COMPILERS: how many launchers it compiles at once. $SETTLED: after how many launches an autotuner looks for nothing."""
import os

import wavetune.runtime.launchers
import wavetune.runtime.restore
import wavetune.runtime.sender
import wavetune.runtime.wire

wavetune.runtime.wire.FIRST_BYTE_S = wavetune.runtime.sender.LAST_S = float(os.environ["PATIENT_S"])
wavetune.runtime.wire.BACKGROUND_S = 60.0
if "SETTLED" in os.environ:
    wavetune.runtime.restore.SETTLED = int(os.environ["SETTLED"])
if "COMPILERS" in os.environ:
    wavetune.runtime.launchers._threads_max = lambda: int(os.environ["COMPILERS"])
