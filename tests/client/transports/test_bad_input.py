"""A server that says what it should not, or nothing: one class for each, on every transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from beanstalk_twisted.client import errors
from beanstalk_twisted.wire.replies import MAX_REPLY_LINE_BYTES
from tests.certificates import Certificates
from tests.client.transports.carriers import CARRIERS
from tests.script_server import Listener, Speak, answer, relay, server_context

EACH_CARRIER = pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)


def saying(reply: bytes | None) -> Speak:
    """Be a server until a put comes, and answer that so."""
    return answer(lambda words: b"USING default\r\n" if words[0] == b"use" else reply)


@EACH_CARRIER
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", errors.BadReply),
        (b"INSERTED seven\r\n", errors.BadReply),
        (b"INSERTED 1\r\nINSERTED 2\r\n", None),
        (b"I" * MAX_REPLY_LINE_BYTES, errors.LineTooLong),
        (b"INSER", errors.ServerClosed),
        (None, errors.ServerClosed),
    ],
)
def test_a_bad_answer_says_that_the_command_may_have_been_carried_out(
    carrier: Callable[..., Any], reply: bytes | None, kind: type[Exception] | None
) -> None:
    async def talk(client: Any) -> None:
        if kind is None:  # One reply too many is found after the first one was taken.
            assert await client.put(b"x") == 1
            return
        with pytest.raises(errors.Unanswered) as raised:
            await client.put(b"x")
        assert type(raised.value.reason) is kind
        assert raised.value.may_be_done and raised.value.command == "put"

    speak = saying(reply)
    if reply == b"INSER":

        def speak_in_part(line: Any) -> None:
            line.recv(1 << 16)
            line.sendall(b"USING default\r\n")
            line.recv(1 << 16)
            line.sendall(b"INSER")

        speak = speak_in_part
    with Listener(speak) as server:
        carrier(server.address, talk)


@EACH_CARRIER
def test_the_longest_line_of_all_is_read(carrier: Callable[..., Any]) -> None:
    longest = b"CANNOT_HAND_OVER ".ljust(MAX_REPLY_LINE_BYTES - 2, b"x") + b"\r\n"
    replies = {
        b"use": b"USING default\r\n", b"capabilities": b"OK 14\r\n---\n- promote\n\r\n",
        b"promote": longest,
    }  # fmt: skip

    async def talk(client: Any) -> None:
        with pytest.raises(errors.CannotHandOver) as raised:
            await client.promote()
        assert not raised.value.may_be_done
        assert len(raised.value.meaning) == MAX_REPLY_LINE_BYTES - len("CANNOT_HAND_OVER \r\n")

    with Listener(answer(lambda words: replies[words[0]])) as server:
        carrier(server.address, talk)


@EACH_CARRIER
def test_a_certificate_that_does_not_fit_is_told_before_anything_is_sent(
    carrier: Callable[..., Any], certificates: Certificates
) -> None:
    async def talk(client: Any) -> None:
        await client.put(b"x")

    with Listener(relay(server_context(certificates.server), 1)) as server:
        address = f"tls://127.0.0.1:{server.port}?ca={certificates.ca}&name=other.example"
        with pytest.raises(errors.TlsFailed) as raised:
            carrier(address, talk)
    assert "not for other.example" in str(raised.value)
    assert not raised.value.may_be_done
