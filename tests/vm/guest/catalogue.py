"""All checks, from the plain to the rough: importing this registers them."""

import importlib


SUBJECTS = ("registry", "controls", "undoing", "rights", "daemon", "level", "fuzz", "stress")

for subject in SUBJECTS:
    importlib.import_module(subject)
