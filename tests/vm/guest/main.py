"""Entry point inside the machine: main.py [CHECK...]; all of them without arguments."""

import importlib

import checks
import daemon  # noqa: F401 registers its checks
import level  # noqa: F401 registers its checks


# Once: each check is forked from here, and under emulation these imports take up to half a minute.
importlib.import_module("gpsched.adaptive.slices")
importlib.import_module("gpsched.adaptive.driver.module_link")
checks.main()
