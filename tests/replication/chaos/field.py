"""Three NATS servers and three of ours, each on a machine, and all that can be done to them."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.replication.chaos.disks import Disk, hold_images
from tests.replication.chaos.machines import (
    Machine,
    connect_machines,
    cut,
    has_namespaces,
    heal,
)
from tests.replication.cluster import Cluster, Server
from tests.server_process import LIMIT_S, Connection, ServerProcess, ours_at_once

LEASES_S: Final = (2, 3, 2)
"""Of our servers: an operator may have given them different ones."""

LEASE_S: Final = max(LEASES_S)

REPLICATE_TIMEOUT_S: Final = 3

DISK_MB: Final = 96
"""Of each server of ours, where it has a disk of its own; ``NATS_DISK_MB`` of each of NATS."""

NATS_DISK_MB: Final = 192

COPIES_MB: Final = DISK_MB // 4
"""Of copies in ``quarantine/``: who has as many looks at them, and removes them."""

STILL_S: Final = 0.05
"""What servers that stand still have asked of their disks is done by then."""

STREAM: Final = "jobs"

PROMOTE_S: Final = 3.0
"""How long `promote` waits for an answer: faults end later for so long."""

LIMIT_READY_S: Final = 90.0
"""How long all may take until they are well again."""


class Host:
    """A server of ours on its machine.

    :ivar ends: exit codes of processes that have ended by themselves, with their last words.
    :ivar may_end: whether what is done to it may end it.
    """

    def __init__(self, folder: Path, number: int, shim: Path | None, disk: Disk) -> None:
        self.machine = Machine(10 + number)
        self.name = f"server{number}"
        self.port, self.http = self.machine.ports(2, 11300 + 10 * number)
        self.disk = disk
        self._lease_s = LEASES_S[number]
        self._folder = folder
        self._environment: dict[str, str] = {}
        self._offset = folder / f"{self.name}.clock"
        self._offset.write_bytes(bytes(8))
        if shim is not None:
            self._environment = {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(self._offset)}
        self.ends: list[tuple[int, str]] = []
        self.may_end = False
        self.server: ServerProcess | None = None

    @property
    def binlog(self) -> Path:
        return self.disk.at / "log"

    def start(self, url: str) -> None:
        self._remove_copies()
        command = ours_at_once(
            "--binlog", self.binlog, "--segment-size", 1 << 20, "--address", self.machine.address,
            "--port", self.port, "--http", f"{self.machine.address}:{self.http}", "--replicate",
            url, "--lease-seconds", self._lease_s, "--replicate-timeout", REPLICATE_TIMEOUT_S,
        )  # fmt: skip
        self.server = ServerProcess(
            [*self.machine.prefix, *command], self._folder, self._environment
        )

    def _remove_copies(self) -> None:
        """In hundreds of terms a server begins so often anew that copies would take all of its
        disk.
        """
        folder = self.binlog / "quarantine"
        if sum(path.stat().st_size for path in folder.glob("*")) > COPIES_MB << 20:
            shutil.rmtree(folder)

    def end(self, number: int = signal.SIGKILL) -> None:
        server, self.server = self.server, None
        if server is not None:
            server.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(timeout=LIMIT_S / 2)
            server.kill()
            self._keep(server)

    def look(self) -> None:
        """Note if it has ended by itself."""
        server = self.server
        if server is not None and server.process.poll() is not None:
            status, said = server.ended()
            server.kill()
            self.server = None
            self._keep(server)
            if not self.may_end:
                self.ends.append((status, said[-1500:]))

    def _keep(self, server: ServerProcess) -> None:
        with (self._folder / f"{self.name}.log").open("a") as log:
            log.write("".join(server.said()) + f"--- {server.process.returncode}\n")

    def signal(self, number: int) -> None:
        if self.server is not None:
            self.server.process.send_signal(number)

    def set_clock(self, ahead_s: float) -> None:
        with self._offset.open("r+b") as file:
            file.write(struct.pack("<q", int(ahead_s * 1e9)))

    def situation(self) -> dict[str, Any]:
        """How replication is, as it says; empty if it does not answer."""
        url = f"http://{self.machine.address}:{self.http}/api/v1/replication"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return {}
        return found

    @property
    def is_active(self) -> bool:
        """Whether it serves clients."""
        return self.situation().get("role") == "active"


class Field:
    """All of them.

    :ivar nats: the cluster; ``hosts`` ours; ``nats_disks`` what the cluster's servers have.
    """

    def __init__(self, folder: Path, sync_interval: str = "always") -> None:
        """:param sync_interval: of NATS; with any other than "always" a loss of power loses
        jobs.
        """
        connect_machines()
        images = folder / "disks"
        hold_images(images)
        self._folder = folder
        self.has_partitions = has_namespaces()
        shim = _clock_shim(folder)
        self.has_clocks = shim is not None
        self._machines = [Machine(number) for number in range(1, 4)]
        self.nats = Cluster([])
        self.nats_disks = [Disk(images / f"nats{number}", NATS_DISK_MB) for number in range(3)]
        ports = [machine.ports(3, 4222) for machine in self._machines]
        addresses = [machine.address for machine in self._machines]
        routes = ", ".join(
            f'"nats://{address}:{port[2]}"' for address, port in zip(addresses, ports, strict=True)
        )
        for at, (machine, port) in enumerate(zip(self._machines, ports, strict=True)):
            lines = (
                f'jetstream {{ store_dir: "{self.nats_disks[at].at}", max_file_store: 1GB, '
                f"sync_interval: {sync_interval} }}\n"
                f'ping_interval: "2s"\ncluster {{ name: c, listen: "{machine.address}:{port[2]}", '
                f"routes: [{routes}] }}\n"
            )
            self.nats.servers.append(
                Server(folder, f"n{at}", port[:2], lines, machine.address, machine.prefix)
            )
        self.url = self.nats.url(STREAM)
        self.hosts = [
            Host(folder, number, shim, Disk(images / f"server{number}", DISK_MB))
            for number in range(3)
        ]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Of our servers, for clients."""
        return [(host.machine.address, host.port) for host in self.hosts]

    def start(self) -> None:
        """Start what does not run."""
        for host in self.hosts:
            host.look()
            if host.server is None:
                host.start(self.url)

    def active(self) -> Host | None:
        return next((host for host in self.hosts if host.server and host.is_active), None)

    def part(self, host: Host, direction: str) -> Callable[[], None]:
        """Cut one of ours from all NATS servers.

        :param direction: "to", "from" or "both".
        :return: what undoes it.
        """
        pairs = []
        for machine in self._machines:
            pairs += [(host.machine, machine)] * (direction != "from")
            pairs += [(machine, host.machine)] * (direction != "to")
        return _cut_all(pairs)

    def part_nats(self, number: int) -> Callable[[], None]:
        """Cut a NATS server from all others, and from ours.

        :return: what undoes it.
        """
        lonely = self._machines[number]
        others = [machine for machine in self._machines if machine is not lonely]
        others += [host.machine for host in self.hosts]
        return _cut_all([pair for other in others for pair in ((lonely, other), (other, lonely))])

    @property
    def has_power(self) -> bool:
        """Whether `lose_power` can be."""
        return all(disk.has_power for disk in self._disks)

    @property
    def _disks(self) -> list[Disk]:
        return [*self.nats_disks, *(host.disk for host in self.hosts)]

    def lose_power(self) -> None:
        """Let all machines lose power in one moment, and NATS start again with what its disks
        have.
        """
        for server in self.nats.servers:
            server.pause()
        for host in self.hosts:
            host.signal(signal.SIGSTOP)
        time.sleep(STILL_S)
        for disk in self._disks:
            disk.lose_power()
        self.nats.stop()
        for host in self.hosts:
            host.end()
        for disk in self._disks:
            disk.come_back()
        for server in self.nats.servers:
            server.start()

    def wait_for_nats(self) -> None:
        """Wait until each NATS server has what the others have."""
        wait(lambda: all(server.is_well for server in self.nats.servers), "NATS is not well")

    def wait_until_well(self) -> Host:
        """Wait until one of ours is active, and the others have all that it has."""
        self.wait_for_nats()
        wait(self._is_well, "the servers are not well", lambda: str(self.situations()))
        active = self.active()
        assert active is not None
        return active

    def situations(self) -> list[dict[str, Any]]:
        """What each of ours says."""
        return [host.situation() for host in self.hosts]

    def _is_well(self) -> bool:
        self.start()
        found = self.situations()
        roles = sorted(str(each.get("role")) for each in found)
        behind = [each.get("lag_records", 1) or each.get("lag_bytes", 1) for each in found]
        follows = [
            "follows" in each["why_not_ready"] for each in found if each.get("role") == "standby"
        ]
        # A standby that hears nothing says that it has no lag.
        lsns = [each["lsn"] for one in found for each in one.get("standbys", ())
                if one["role"] == "active"]  # fmt: skip
        is_same = len(lsns) == 2 and len(set(lsns)) == 1
        has_roles = roles == ["active", "standby", "standby"]
        return has_roles and is_same and all(follows) and not any(behind)

    def stop(self) -> None:
        for host in self.hosts:
            host.signal(signal.SIGCONT)
            host.end()
            host.machine.stop()
        self.nats.stop()
        for machine in self._machines:
            machine.stop()


def wait(
    is_so: Callable[[], object], otherwise: str, told: Callable[[], str] = str,
    limit_s: float = LIMIT_READY_S,
) -> None:  # fmt: skip
    """Wait until something is so, and look seldom: others need the processors."""
    give_up = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < give_up, f"{otherwise}: {told()}"
        time.sleep(0.2)


def _cut_all(pairs: list[tuple[Machine, Machine]]) -> Callable[[], None]:
    for source, target in pairs:
        cut(source, target)

    def undo() -> None:
        for source, target in pairs:
            heal(source, target)

    return undo


def _clock_shim(folder: Path) -> Path | None:
    """Build what sets wall clocks; None where there is no compiler."""
    if shutil.which("gcc") is None:
        return None
    built = folder / "clockshim.so"
    source = Path(__file__).with_name("clockshim.c")
    subprocess.run(
        ["gcc", "-O1", "-Wall", "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"],
        check=True, timeout=LIMIT_S,
    )  # fmt: skip
    return built


def promote(host: Host) -> None:
    """Ask it to hand over, as `beanstalk promote` does; a server whose lease is over does not
    answer.
    """
    command = [str(Path(sys.executable).with_name("beanstalk")), "promote", "-s"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*command, f"{host.machine.address}:{host.port}"], capture_output=True, check=False,
            timeout=PROMOTE_S,
        )  # fmt: skip


def asked(host: Host) -> Connection:
    return Connection((host.machine.address, host.port), waits=True)
