"""What controls and switches cost on this machine: measured by ``gpsched calibrate``, read by the daemon.

``measure`` drives two programs that the caller started, through the driver room; ``model`` is the result, ``store`` its
file, ``costs`` what the levels make of it.
"""
