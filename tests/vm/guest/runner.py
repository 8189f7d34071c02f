"""Runs the checks: each in a process of its own, one line of JSON for each."""

import json
import os
import sys
import time

import netlink as nl
from checks import CHECKS, DEBUG, in_child, log, wait_for


GAUGES = ("clients", "objects", "groups", "controllers", "plans", "holds", "allocated")


def settled(link: nl.Netlink) -> dict:
    counters = link.counters()
    return {name: counters[name] for name in GAUGES if counters[name]}


def run(name: str) -> dict:
    probe = nl.Netlink()
    lost = probe.counters()["lost"]
    began = time.monotonic()
    for knob in ("fail", "fail_count", "delay_ms", "fail_alloc"):
        (DEBUG / knob).write_text("0")
    (DEBUG / "clear").write_text("1")
    status, detail = in_child(CHECKS[name], limit_s=int(os.environ.get("GPSCHED_CHECK_LIMIT", "300")))
    try:
        assert status == 0, f"status {status}: {detail}"
        wait_for(lambda: not settled(probe), "nothing left behind", 30)
        if name not in ("memory_runs_out", "malformed_ioctls"):  # there it is what they are about
            assert probe.counters()["lost"] == lost, "the registry lost objects"
        outcome = {"check": name, "ok": True, "detail": detail}
    except BaseException as error:
        rows = [(hex(c), hex(o), hex(cmd), hex(s), p.hex()) for c, o, cmd, s, p in log()[-12:]]
        outcome = {"check": name, "ok": False, "detail": f"{error}\nleft: {settled(probe)}\nlast controls: {rows}"}
    probe.close()
    return {**outcome, "seconds": round(time.monotonic() - began, 2)}


def main() -> None:
    names = sys.argv[1:] or list(CHECKS)
    for name in names:
        print(json.dumps(run(name)), flush=True)
