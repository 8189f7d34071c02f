"""Entry point inside the machine: main.py [CHECK...]; all of them without arguments."""

import importlib

import catalogue  # noqa: F401 registers the checks
import runner


# Once: each check is forked from here, and under emulation these imports take up to half a minute.
importlib.import_module("gpsched.adaptive.slices")
importlib.import_module("gpsched.adaptive.driver.module_link")
runner.main()
