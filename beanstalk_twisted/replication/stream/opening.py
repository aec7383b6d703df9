"""
The door that a URL names.
"""

from beanstalk_twisted.replication.stream.addresses import parse
from beanstalk_twisted.replication.stream.door import Refused, Stream


def stream_at(url: str) -> Stream:
    """
    The stream of a URL, not open yet.

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
    return JetStream(address)
