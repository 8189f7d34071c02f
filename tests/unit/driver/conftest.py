"""Makes the fake resource manager beside this file importable."""

import sys
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parent))
