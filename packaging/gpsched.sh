#!/bin/sh
# -P: nothing is imported from the folder in which it happens to be started.
exec /usr/lib/gpsched/bin/python -P -m gpsched.cli.main "$@"
