"""
The door that a URL names.
"""

from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.door import Refused, Stream


def stream_at(url: str, open_s: float | None = None) -> Stream:
    """
    The stream of a URL, not open yet.

    :param open_s: for how long `Stream.open` tries; None for as long as NATS takes to elect a
        leader.
    :raise Refused: it is no such URL, or nats-py is not installed.
    """
    address = parse(url)
    try:
        from beanstalk_twisted.replication.stream.jetstream import JetStream
    except ImportError as error:
        raise Refused(
            f"{address.shown} needs nats-py ({error}): run pip install"
            " 'beanstalk-twisted[replicate]'"
        ) from None
    return JetStream(address) if open_s is None else JetStream(address, open_s=open_s)
