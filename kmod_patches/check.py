#!/usr/bin/env python3
"""Tell whether a driver tree can take the hooks, or whether a patched tree has each hook in the intended function.

    check.py TREE             before patching: are all anchors there, once, in the function where they belong?
    check.py --patched TREE   after patching: does each call sit there?

TREE is NVIDIA's published tree (with kernel-open/) or a DKMS source folder. Nothing is changed. Exit: 0 yes, 1 no.
Only the standard library: this runs on machines that have nothing of gpsched installed.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path


TRIED = ("535", "550")  # built and loaded by the tests
SOURCES_ANCHOR = "NVIDIA_SOURCES += nvidia/nv.c"
MARK = "gpsched/gpsched.h"


class TreeError(Exception):
    """The tree cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Hook:
    """One call of ours: ``call`` stands next to ``anchor`` in ``function`` of nv.c."""

    call: str
    function: str
    anchor: str
    before: bool = False
    line_between: str = ""


HOOKS = (
    Hook("gpsched_ioctl(&nvlfp->nvfp, arg_cmd, arg_copy, arg_size);", "nvidia_ioctl", "rmStatus = rm_ioctl("),
    Hook("gpsched_close(&nvlfp->nvfp);", "nvidia_close_callback", "rm_cleanup_file_private(", before=True),
    Hook("gpsched_close(&nvlfp->nvfp);", "nvidia_ctl_close", "rm_cleanup_file_private(", before=True),
    Hook("gpsched_init();", "nv_module_init", "nv_module_state_init(", line_between="if (rc >= 0)"),
    Hook("gpsched_exit();", "nv_module_exit", "nv_module_state_exit(", before=True),
)


def layer(tree: Path) -> Path:
    """Return the folder that holds nvidia/nv.c. Raises TreeError when there is none."""
    for folder in (tree / "kernel-open", tree):
        if (folder / "nvidia" / "nv.c").is_file():
            return folder
    if (tree / "nvidia.ko").exists() or (tree / "kernel" / "nvidia" / "nv.c").is_file():
        raise TreeError(f"{tree} is the proprietary flavour; install NVIDIA's open kernel modules")
    raise TreeError(f"{tree} is no driver tree: it has neither kernel-open/nvidia/nv.c nor nvidia/nv.c")


def version(folder: Path) -> str:
    """Return the driver's version, or "unknown"."""
    for name in ("Kbuild", "dkms.conf"):
        file = folder / name
        if file.is_file():
            found = re.search(
                r'(?:NV_VERSION_STRING=\\"|PACKAGE_VERSION=")([0-9][0-9.]+)', file.read_text(errors="replace")
            )
            if found:
                return found.group(1)
    return "unknown"


def body(text: str, function: str) -> list[str]:
    """Return the lines of a function's body: from the brace in column 0 after its name to the closing one."""
    found = re.search(rf"^(?:[\w \t*]*\b)?{function}\s*\((?:[^;{{}}]*)\)\s*\n{{\n(.*?)^}}", text, re.M | re.S)
    return [line.strip() for line in found.group(1).splitlines()] if found else []


def anchor_problem(text: str, hook: Hook) -> str:
    """Say what is wrong with a hook's anchor in an unpatched nv.c; empty when nothing is."""
    lines = body(text, hook.function)
    if not lines:
        return f"function {hook.function} is not there"
    count = sum(hook.anchor in line for line in lines)
    return "" if count == 1 else f"{hook.anchor}...) is {count} times in {hook.function}, not once"


def hook_problem(text: str, hook: Hook) -> str:
    """Say what is wrong with a hook in a patched nv.c; empty when nothing is."""
    lines = body(text, hook.function)
    places = [index for index, line in enumerate(lines) if line == hook.call]
    if len(places) != 1:
        return f"{hook.call} is {len(places)} times in {hook.function}, not once"
    place = places[0]
    step = 1 if hook.before else -1
    near = place + step
    if hook.line_between:
        if lines[near] != hook.line_between:
            return f"{hook.call} in {hook.function} is not under {hook.line_between}"
        near += step
    if not 0 <= near < len(lines) or hook.anchor not in lines[near]:
        return f"{hook.call} in {hook.function} is not next to {hook.anchor}...)"
    return ""


def problems(folder: Path, *, patched: bool) -> list[str]:
    """Return all that is wrong, one line each."""
    text = (folder / "nvidia" / "nv.c").read_text(errors="replace")
    sources = (folder / "nvidia" / "nvidia-sources.Kbuild").read_text(errors="replace").splitlines()
    has_mark = MARK in text
    if patched and not has_mark:
        return ["the tree is not patched"]
    if not patched and has_mark:
        return ["the tree is already patched; to see whether it is right: check.py --patched"]
    test = hook_problem if patched else anchor_problem
    found = [problem for hook in HOOKS if (problem := test(text, hook))]
    if patched:
        calls = sum(
            text.count(f"{name}(") for name in ("gpsched_ioctl", "gpsched_close", "gpsched_init", "gpsched_exit")
        )
        if calls != len(HOOKS):
            found.append(f"nv.c has {calls} calls of gpsched, not {len(HOOKS)}")
        if not any("gpsched/*.c" in line for line in sources):
            found.append("nvidia-sources.Kbuild does not name gpsched's files")
        if not (folder / "nvidia" / "gpsched" / "gpsched.c").is_file():
            found.append("nvidia/gpsched/ has no gpsched.c")
    elif sources.count(SOURCES_ANCHOR) != 1:
        found.append(f"nvidia-sources.Kbuild: '{SOURCES_ANCHOR}' is not there once")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the check and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, metavar="TREE")
    parser.add_argument("--patched", action="store_true", help="prove the hooks of a patched tree")
    options = parser.parse_args(arguments)
    try:
        folder = layer(options.tree)
        found = problems(folder, patched=options.patched)
    except (TreeError, OSError) as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    driver = version(folder)
    for problem in found:
        print(f"check: driver {driver}: {problem}", file=sys.stderr)
    if found:
        print(f"check: {folder}: nothing was changed; this tree needs another patch, please report it", file=sys.stderr)
        return 1
    note = (
        ""
        if driver.split(".")[0] in TRIED
        else f" (anchors fit; only {' and '.join(TRIED)} were built and loaded by us)"
    )
    print(f"driver {driver}: {'every hook is in its function' if options.patched else 'can be patched'}{note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
