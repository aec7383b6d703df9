"""What would refuse a start: files and ports."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactor, RaisingMemoryReactor

from beanstalk_twisted.daemon.listening import ports_in_use, wrong_files


def endpoint(text: str, reactor: Any = None) -> Any:
    """One of a reactor without sockets."""
    return serverFromString(reactor or MemoryReactor(), text)


def options(*endpoints: Any, listen: bool = False, http: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Those that name ports."""
    return {
        "listen": listen, "endpoints": endpoints, "endpoints_v1": (), "endpoints_http": http,
    }  # fmt: skip


def test_files_are_read_as_a_server_does(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("")
    bad.write_text("[mail]\nmax-fun = 1\n")
    assert wrong_files({"access": None, "tubes": None}) == {}
    assert wrong_files({"access": str(good), "tubes": str(good)}) == {"access": "", "tubes": ""}
    told = wrong_files({"access": str(tmp_path / "none"), "tubes": str(bad)})
    assert told["access"] == f"{tmp_path}/none: it cannot be read: No such file or directory"
    assert told["tubes"].startswith(f"{bad}: line 2, max-fun of ['mail']: there is no key")


def test_why_a_port_cannot_be_had_is_told_with_its_option() -> None:
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    refusing = RaisingMemoryReactor(listenException=CannotListenError("", 11300, taken))
    one = endpoint("tcp:11300", refusing)
    free = endpoint("tcp:11301")
    (why,) = ports_in_use(options(free, one))
    assert why.startswith("cannot listen on *:11300: address already in use")
    assert "--port 11301" in why
    (why,) = ports_in_use(options(one, free, listen=True))
    assert "another port in --listen" in why
    (why,) = ports_in_use(options(free, http=(one,)))
    assert "another port in --http" in why
    assert ports_in_use(options(free, http=(free,))) == []


def test_unix_sockets_are_left_alone(tmp_path: Path) -> None:
    refusing = RaisingMemoryReactor(listenException=CannotListenError("", "socket", OSError()))
    assert ports_in_use(options(endpoint(f"unix:{tmp_path}/socket", refusing))) == []
