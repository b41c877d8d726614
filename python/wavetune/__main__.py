"""python3 -m wavetune"""

import sys

from .cli import main

sys.exit(main())
