"""In a program's PYTHONPATH: it waits $PATIENT_S for its server and at its end, however slow the machine of the tests is.
$COMPILERS: how many launchers it compiles at once. $SETTLED: after how many launches an autotuner looks for nothing."""
import os

import wavetune._runtime.launchers
import wavetune._runtime.restore
import wavetune._runtime.sender
import wavetune._runtime.wire

wavetune._runtime.wire.FIRST_BYTE_S = wavetune._runtime.sender.LAST_S = float(os.environ["PATIENT_S"])
wavetune._runtime.wire.BACKGROUND_S = 60.0
if "SETTLED" in os.environ:
    wavetune._runtime.restore.SETTLED = int(os.environ["SETTLED"])
if "COMPILERS" in os.environ:
    wavetune._runtime.launchers._threads_max = lambda: int(os.environ["COMPILERS"])
