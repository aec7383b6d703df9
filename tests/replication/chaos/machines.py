"""What servers run on: as root, a network namespace each, with a monotonic clock of its own; else
this machine's own loopback.

The whole run is in namespaces of its own for network, processes and mounts (`inside`), so nothing
of it is left when it ends, however it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.ports import free_ports
from tests.server_process import LIMIT_S

INSIDE = "CHAOS_NAMESPACES"
"""Set in the environment of a run that is in namespaces of its own."""

DAY_S = 86_400
"""The monotonic clocks of two machines are at least so far apart: none may be sent to another."""

_UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def inside() -> Sequence[str]:
    """Give what a command begins with that runs in namespaces of its own; empty where none can be
    made.
    """
    needed = ("unshare", "nsenter", "ip", "iptables")
    if os.geteuid() != 0 or not all(map(shutil.which, needed)):
        return ()
    tried = subprocess.run(
        [*_UNSHARE, "unshare", "--time", "true"], capture_output=True, timeout=LIMIT_S, check=False
    )
    return _UNSHARE if tried.returncode == 0 else ()


def has_namespaces() -> bool:
    """Whether this process is in namespaces of its own."""
    return INSIDE in os.environ


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


class Machine:
    """Where one server runs.

    :ivar address: of its servers.
    :ivar prefix: what a command begins with that runs there.
    """

    def __init__(self, number: int) -> None:
        self.address = "127.0.0.1"
        self.prefix: list[str] = []
        if has_namespaces():
            self._make(number)

    def _make(self, number: int) -> None:
        hub, self.address = f"10.99.{number}.1", f"10.99.{number}.2"
        clocks = ["--time", "--monotonic", str(number * DAY_S), "--boottime", str(number * DAY_S)]
        self._holder = subprocess.Popen(
            ["unshare", "--net", *clocks, "sh", "-c",
             "ip link set lo up; echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._holder.stdout is not None and self._holder.stdout.readline()
        pid, link = str(self._holder.pid), f"m{number}"
        own = f"/proc/{pid}/ns"
        self.prefix = ["nsenter", f"--net={own}/net", f"--time={own}/time_for_children", "--"]
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid)
        run("ip", "addr", "add", f"{hub}/30", "dev", link)
        run("ip", "link", "set", link, "up")
        run(*self.prefix, "ip", "addr", "add", f"{self.address}/30", "dev", "eth0")
        run(*self.prefix, "ip", "link", "set", "eth0", "up")
        run(*self.prefix, "ip", "route", "add", "default", "via", hub)

    def ports(self, count: int, first: int) -> list[int]:
        """Ports at which nobody listens here."""
        return list(range(first, first + count)) if has_namespaces() else free_ports(count)

    def stop(self) -> None:
        """Let the namespace go."""
        if has_namespaces():
            self._holder.kill()
            self._holder.wait(LIMIT_S)


def connect_machines() -> None:
    """Let packets pass from one machine to another."""
    if has_namespaces():
        run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def cut(source: Machine, target: Machine) -> None:
    """Let no packet pass from one to another, silently."""
    run("iptables", "-I", "FORWARD", "-s", source.address, "-d", target.address, "-j", "DROP")


def heal(source: Machine, target: Machine) -> None:
    """Let packets pass again."""
    run("iptables", "-D", "FORWARD", "-s", source.address, "-d", target.address, "-j", "DROP")


def again_inside(arguments: Sequence[str], module: str) -> None:
    """Begin this process anew in namespaces of its own, if they can be made."""
    prefix = inside()
    if prefix:
        os.environ[INSIDE] = "1"
        os.execvp(prefix[0], [*prefix, sys.executable, "-m", module, *arguments])
