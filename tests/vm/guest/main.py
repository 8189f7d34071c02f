"""Entry point inside the machine: main.py [CHECK...]; all of them without arguments."""

import checks
import level  # noqa: F401 registers its checks


checks.main()
