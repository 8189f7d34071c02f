"""A program with a hold agent's page and thread, which launches nothing, but says that it did; or, if told, never.

The page has, in place of errors, by how much less than ``NICEST`` the thread's nice value was then, and on how many
CPUs it might run.
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
OWN_NICE, NICEST = 5, 20


def make_page():
    file = os.memfd_create("gpsched-hold", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, 4096)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    page = Layout.from_buffer(mmap.mmap(file, 4096))
    page.magic, page.version, page.ready = 0x444C4F48, 2, 1
    return page


def serve(page, answers):
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"gpsched-hold")
    os.setpriority(os.PRIO_PROCESS, 0, OWN_NICE)
    while True:
        if answers and page.launched != page.wanted:
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            page.failures, page.last_error = NICEST - nice, len(os.sched_getaffinity(0))
            page.launched_ns = time.monotonic_ns()
            page.launched = page.wanted
        time.sleep(0.0001)


if __name__ == "__main__":
    threading.Thread(target=serve, args=(make_page(), "silent" not in sys.argv), daemon=True).start()
    time.sleep(300)
