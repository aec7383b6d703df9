"""What would refuse a start, beside wrong options and the log: files that cannot be used, ports
that cannot be listened on.  For ``beanstalk doctor``, which asks this in a process of its own.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from beanstalk_twisted.access.rules import BadAccessFile
from beanstalk_twisted.daemon.files import BadTubesFile, read_access, read_tubes
from beanstalk_twisted.daemon.options import tls_endpoints
from beanstalk_twisted.daemon.sockets import why_not


def wrong_files(options: Mapping[str, Any]) -> dict[str, str]:
    """:param options: those of the server, checked.
    :return: for ``access`` and ``tubes``, where one is named, why it cannot be used; empty if it
        can.
    """
    found = {}
    for name, read in (("access", read_access), ("tubes", read_tubes)):
        if options[name] is not None:
            try:
                read(options[name])
                found[name] = ""
            except (BadAccessFile, BadTubesFile) as problem:
                found[name] = f"{options[name]}: {problem}"
    return found


def tls_files(options: Mapping[str, Any]) -> list[tuple[str, str, list[str]]]:
    """:param options: those of the server, checked.
    :return: of each endpoint for TLS its name, why its files cannot be used, empty if they can, and
        what is to be warned of.
    """
    found = []
    for endpoint in tls_endpoints(options):
        try:
            found.append((endpoint.name, "", endpoint.check()))
        except ValueError as problem:
            found.append((endpoint.name, str(problem), []))
    return found


def ports_in_use(options: Mapping[str, Any]) -> list[str]:
    """Listen on all TCP ports until this process ends; nobody is answered, as no reactor runs.  So
    two options that name one port are found too.

    UNIX sockets are left alone: to listen on one makes a file.

    :return: why, for each on which a server could not listen.
    """
    modern = "--listen" if options["listen"] else "--port"
    groups = (
        (modern, options["endpoints"]),
        ("--listen-v1", options["endpoints_v1"]),
        ("--http", options["endpoints_http"]),
    )
    return [why for option, group in groups for why in _refused(option, group)]


def _refused(option: str, group: Iterable[IStreamServerEndpoint]) -> Iterator[str]:
    for endpoint in group:
        # As `check_port`: of the endpoints those of TCP and TLS have one.
        if not isinstance(getattr(endpoint, "_port", None), int):
            continue
        opening: Deferred[IListeningPort] = maybeDeferred(endpoint.listen, Factory())
        outcome: list[Any] = []
        opening.addBoth(outcome.append)
        if outcome and isinstance(outcome[0], Failure):
            problem = outcome[0].value
            assert problem is not None
            yield why_not(problem, option)
