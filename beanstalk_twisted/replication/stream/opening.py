"""The door that a URL names."""

from collections.abc import Mapping
from typing import Final

from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.door import Refused, Stream

PACKAGES: Final = "another package: pip install '.[replicate]'"
"""What a stream needs, and how that is had in a checkout, where all is installed from."""


def stream_at(url: str, open_s: float | None = None) -> Stream:
    """The stream of a URL, not open yet.

    :param open_s: for how long `Stream.open` tries; None for as long as NATS takes to elect a
        leader.
    :raise Refused: it is no such URL, or nats-py is not installed.
    """
    address = parse(url)
    try:
        from beanstalk_twisted.replication.stream.jetstream import JetStream
    except ImportError as error:
        raise Refused(f"{address.shown} needs {PACKAGES} ({error})") from None
    return JetStream(address) if open_s is None else JetStream(address, open_s=open_s)


def credential_warnings(environment: Mapping[str, str]) -> list[str]:
    """What is only half of the credentials of a NATS user."""
    user, password = (bool(environment.get(name)) for name in ("NATS_USER", "NATS_PASSWORD"))
    if user is password:
        return []
    if user:
        return ["NATS_USER is set and NATS_PASSWORD is not: the password is taken for empty"]
    return ["NATS_PASSWORD is set and NATS_USER is not, so it has no effect"]
