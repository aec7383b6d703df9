"""What the transport has not taken yet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.client.commands.specs import DELETE, PUT
from beanstalk_twisted.client.exchange import PIECE_BYTES, Outbox, Request, cost


def put(size: int) -> Request:
    """Make a put of so many bytes."""
    return Request(PUT, (0, 0, 1, size), b"x" * size)


@given(st.lists(st.sampled_from([0, 1, 100, 60_000, PIECE_BYTES, 200_000]), max_size=12))
def test_all_leave_in_order_and_in_pieces_of_a_bounded_size(sizes: list[int]) -> None:
    outbox: Outbox[Request] = Outbox()
    requests = [put(size) for size in sizes]
    for request in requests:
        outbox.add(request)
    assert outbox.bytes == sum(map(cost, requests))
    pieces = []
    while outbox:
        pieces.append(outbox.piece())
    assert b"".join(pieces) == b"".join(request.encode() for request in requests)
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)
    assert all(request.is_sent for request in requests)
    assert outbox.bytes == 0


def test_a_request_is_sent_only_when_its_last_byte_is() -> None:
    outbox: Outbox[Request] = Outbox()
    large, small = put(PIECE_BYTES), Request(DELETE, (1,))
    outbox.add(large)
    outbox.add(small)
    outbox.piece()
    assert (large.is_begun, large.is_sent, small.is_begun) == (True, False, False)
    outbox.piece()
    assert large.is_sent and small.is_sent


def test_what_was_not_begun_can_be_taken_back() -> None:
    outbox: Outbox[Request] = Outbox()
    first, second, third = put(1), put(2), put(3)
    for request in (first, second, third):
        outbox.add(request)
    outbox.drop(second)
    outbox.drop(second)
    assert outbox.piece() == first.encode() + third.encode()
    assert outbox.bytes == 0
