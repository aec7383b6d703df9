"""What is known of a peer without its doing: the port that it came to, its process on a UNIX
socket, its certificate.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.logger import Logger

from beanstalk_twisted.access.rules import Peer
from beanstalk_twisted.storage.io_thread import Clock
from beanstalk_twisted.storage.repeats import Repeats, times

_CREDENTIALS: Final = struct.Struct("iII")
"""Of a peer's process: pid, uid, gid (Linux, unix(7), SO_PEERCRED)."""

_KINDS: Final = {"DNSName": "DNS", "UniformResourceIdentifier": "URI", "RFC822Name": "EMAIL"}
"""Names in a certificate, by their classes in `cryptography`."""

MAX_NAMES: Final = 100
"""Of a certificate that are looked at."""


def peer_of(transport: Any) -> Peer:
    """:param transport: of a connection; one that is encrypted has a certificate only when its
    handshake is over, as it is when something has come.
    """
    uid, gid = _process_of(transport)
    return Peer(tuple(_listeners(transport.getHost())), uid, gid, tuple(_names(transport)))


def host_of(transport: Any) -> str:
    """:return: what tells peers apart that guess tokens: an address, or on a UNIX socket its
    user.
    """
    address = transport.getPeer()
    if isinstance(address, IPv4Address | IPv6Address):
        return str(address.host)
    return f"uid {_process_of(transport)[0]}"


def _listeners(address: object) -> Iterator[str]:
    if isinstance(address, UNIXAddress):
        if address.name:
            yield f"unix:{address.name.decode(errors='surrogateescape')}"
    elif isinstance(address, IPv6Address):
        yield f"[{address.host}]:{address.port}"
        yield f"tcp:{address.port}"
    elif isinstance(address, IPv4Address):
        yield f"{address.host}:{address.port}"
        yield f"tcp:{address.port}"


def _process_of(transport: Any) -> tuple[int | None, int | None]:
    """:return: the uid and gid of the peer's process; None where the kernel does not know them."""
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None, None
    with suppress(OSError):
        _, uid, gid = _CREDENTIALS.unpack(
            handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return uid, gid
    return None, None


def _names(transport: Any) -> Iterator[str]:
    """:return: the names in the certificate that the peer has shown; none if it has shown none."""
    get = getattr(transport, "getPeerCertificate", None)
    certificate = None if get is None else get()
    if certificate is None:
        return
    shown = certificate.to_cryptography()
    for attribute in _understood(lambda: shown.subject):
        if attribute.oid.dotted_string == "2.5.4.3":
            yield f"CN={attribute.value}"
    for extension in _understood(lambda: shown.extensions):
        if extension.oid.dotted_string == "2.5.29.17":
            for name in list(extension.value)[:MAX_NAMES]:
                kind = _KINDS.get(type(name).__name__)
                if kind is not None:
                    yield f"{kind}:{name.value}"


def _understood(read: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """:return: nothing of what `cryptography` does not take and OpenSSL did: an extension that is
    damaged, or is there twice, keeps all others from being read.
    """
    try:
        return read()
    except Exception:
        return ()


COMPLETED: Final = "completed"
STALLED: Final = "stalled"
LEFT: Final = "left"

OUTCOMES: Final = (
    COMPLETED, "expired", "not-yet-valid", "revoked", "unknown-authority", "no-certificate",
    "list-ended", "no-list", "untrusted", "plain-text", "version", "nothing-common", "refused",
    STALLED, LEFT, "broken",
)  # fmt: skip
"""As docs/tls.md explains them."""


class Expiry(NamedTuple):
    """When something ends that handshakes need.

    :ivar kind: ``certificate``, ``authority`` or ``revocations``.
    :ivar path: its file.
    """

    kind: str
    path: str
    ends: datetime


class Failed(NamedTuple):
    """A handshake that has failed."""

    peer: str
    why: str


class Handshakes:
    """Counts the handshakes of all ports, and logs those that fail, of each outcome one a minute.

    :ivar limit_s: seconds that one may take; 0 for any time.
    :ivar counts: by outcome.
    :ivar expiries: by endpoint, as the log names it, what says when its files end; so there is none
        where nobody speaks TLS.
    """

    log = Logger()

    def __init__(self, clock: Clock, limit_s: int) -> None:
        self.clock = clock
        self.limit_s = limit_s
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.expiries: dict[str, Callable[[], Sequence[Expiry]]] = {}
        self._failed: dict[str, Repeats[Failed]] = {}

    def completed(self) -> None:
        """One is over, and was right."""
        self.counts[COMPLETED] += 1

    def failed(self, outcome: str, peer: str, why: str) -> None:
        """One is over, and was not.

        :param peer: its address.
        :param why: the rest of the sentence that begins with it.
        """
        self.counts[outcome] += 1
        if outcome != LEFT:
            if outcome not in self._failed:
                self._failed[outcome] = Repeats(self.clock, self._tell(outcome))
            self._failed[outcome].note(Failed(peer, why))

    def stop(self) -> None:
        """Tell what was counted and not told yet; leave no timer."""
        for failed in self._failed.values():
            failed.stop()

    def _tell(self, outcome: str) -> Callable[[int, Failed], None]:
        def tell(count: int, failed: Failed) -> None:
            self.log.warn(
                "{peer}: TLS handshake failed: {why}{times}", event="handshake-failed",
                peer=failed.peer, outcome=outcome, why=failed.why, times=times(count), count=count,
            )  # fmt: skip

        return tell
