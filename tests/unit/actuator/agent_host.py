"""A program with a hold agent's page and thread, which launches nothing, but says that it did; or, if told, never.

The page has, in place of errors, the policy by which the thread ran then, and on how many CPUs it might.
"""

import ctypes
import fcntl
import mmap
import os
import sys
import threading
import time

from gpsched.adaptive.agent.page import Layout


SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
PR_SET_NAME = 15


def make_page():
    file = os.memfd_create("gpsched-hold", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 4096)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    page = Layout.from_buffer(mmap.mmap(file, 4096))
    page.magic, page.version, page.ready = 0x444C4F48, 2, 1
    return page


def serve(page, answers):
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"gpsched-hold")
    while True:
        if answers and page.launched != page.wanted:
            page.failures, page.last_error = os.sched_getscheduler(0), len(os.sched_getaffinity(0))
            page.launched_ns = time.monotonic_ns()
            page.launched = page.wanted
        time.sleep(0.0001)


if __name__ == "__main__":
    threading.Thread(target=serve, args=(make_page(), "silent" not in sys.argv), daemon=True).start()
    time.sleep(300)
