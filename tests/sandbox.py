"""Runs a command under a seccomp profile in the form that Docker, Podman and CRI-O read.

``python -m tests.sandbox PROFILE COMMAND...``: the filter is made by libseccomp, as theirs is, and
holds for the command and all that it starts.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ALLOW = 0x7FFF0000
ERRNO = 0x00050000
COMPARISONS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
MACHINES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}


class Comparison(ctypes.Structure):
    """A ``struct scmp_arg_cmp``."""

    _fields_ = [
        ("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)
    ]  # fmt: skip


def library() -> ctypes.CDLL | None:
    """Find libseccomp; None if it is not here, or this is no machine that the profile names."""
    name = ctypes.util.find_library("seccomp")
    if name is None or platform.machine() not in MACHINES or sys.platform != "linux":
        return None
    found = ctypes.CDLL(name, use_errno=True)
    found.seccomp_init.restype = ctypes.c_void_p
    found.seccomp_init.argtypes = [ctypes.c_uint32]
    found.seccomp_load.argtypes = [ctypes.c_void_p]
    found.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.POINTER(Comparison),
    ]  # fmt: skip
    return found


def action_of(rule: dict[str, Any]) -> int:
    """Give what libseccomp calls the action of a rule."""
    allows = {"SCMP_ACT_ALLOW": True, "SCMP_ACT_ERRNO": False}[rule["action"]]
    return ALLOW if allows else ERRNO | int(rule["errnoRet"])


def compared(argument: dict[str, Any]) -> Comparison:
    """Give a condition of a rule; of a mask the value that must be left stands second."""
    operator = COMPARISONS[argument["op"]]
    return Comparison(argument["index"], operator, argument["value"], argument.get("valueTwo", 0))


def confine(profile: dict[str, Any]) -> None:
    """Let this process, and what it starts, do no more than a profile allows."""
    seccomp = library()
    assert seccomp is not None
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    context = seccomp.seccomp_init(ERRNO | profile["defaultErrnoRet"])
    for rule in profile["syscalls"]:
        conditions = [compared(each) for each in rule.get("args", ())]
        array = (Comparison * len(conditions))(*conditions)
        for name in rule["names"]:
            number = seccomp.seccomp_syscall_resolve_name(name.encode())
            # Other machines have more; those below 0 are not of this one, as the runtimes see it.
            if number >= 0:
                added = seccomp.seccomp_rule_add_array(
                    context, action_of(rule), number, len(conditions), array
                )
                assert added == 0, (name, added)
    assert seccomp.seccomp_load(context) == 0


def main(words: Sequence[str]) -> None:
    """Become the command."""
    confine(json.loads(Path(words[0]).read_text()))
    os.execvp(words[1], list(words[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
