"""Which streams of JetStream are used, warned of and refused."""

from __future__ import annotations

import pytest

from beanstalk_twisted.replication.stream import settings
from beanstalk_twisted.replication.stream.addresses import MAX_NAME, is_stream, parse
from beanstalk_twisted.replication.stream.interface import MAX_MESSAGE_BYTES, Copies, Refused

URL = "nats://h:4222/q"


def test_a_stream_that_is_made_here_is_as_it_must_be() -> None:
    assert settings.check(URL, "q", settings.wanted("q", 3)) == []


FIXED = ("storage", "deny_purge", "sealed", "persist_mode")
"""NATS does not change them: nobody is told to edit them."""


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("subjects", ["orders.*"], "something else"),
        ("subjects", ["q.log", "q.more"], "something else"),
        ("subjects", None, "something else"),
        ("storage", "memory", "is in memory"),
        ("retention", "interest", "drops"),
        ("retention", "workqueue", "drops"),
        ("max_age", 1, "drops what is old"),
        ("max_msgs", 1000, "holds so many"),
        ("max_msgs_per_subject", 1, "holds so many"),
        ("deny_purge", True, "cannot be purged"),
        ("sealed", True, "takes nothing"),
        ("no_ack", True, "acknowledges nothing"),
        ("mirror", {"name": "other"}, "mirror"),
        ("sources", [{"name": "other"}], "other streams"),
        ("subject_transform", {"src": ">", "dest": "x.>"}, "changes subjects"),
        ("persist_mode", "async", "before it writes"),
        ("subject_delete_marker_ttl", 10**9, "messages of its own"),
        ("max_msg_size", MAX_MESSAGE_BYTES + settings.HEADERS_BYTES - 1, "--max-msg-size=-1"),
    ],
)
def test_a_stream_that_may_lose_messages_is_refused_in_one_line(
    setting: str, value: object, says: str
) -> None:
    config = settings.wanted("q", 3) | {setting: value}
    with pytest.raises(Refused, match=says) as refused:
        settings.check(URL, "q", config)
    text = str(refused.value)
    assert text.startswith(f"{URL}: ")
    assert "\n" not in text
    if setting not in ("subjects", "max_msg_size"):
        is_fixed = setting in FIXED or value == "workqueue"
        assert ("nats stream edit" not in text) is ("`nats stream rm q`" in text) is is_fixed
        assert "take another name" in text


def test_a_limit_of_bytes_is_warned_of_unless_it_drops_what_is_old() -> None:
    config = settings.wanted("q", 3) | {"max_bytes": 1 << 30}
    [warning] = settings.check(URL, "q", config)
    assert "nats stream edit q --max-bytes=-1" in warning
    with pytest.raises(Refused, match="drops its oldest"):
        settings.check(URL, "q", config | {"discard": "old"})


def test_a_stream_whose_messages_cannot_expire_is_warned_of() -> None:
    config = {key: value for key, value in settings.wanted("q", 3).items() if "ttl" not in key}
    assert not settings.can_expire(config)
    [warning] = settings.check(URL, "q", config)
    assert "nats stream edit q --allow-msg-ttl" in warning
    assert "NATS 2.11" in warning


def test_of_a_stream_in_use_all_is_said_that_a_start_would_refuse_or_warn_of() -> None:
    assert settings.problems(URL, "q", settings.wanted("q", 3)) == []
    changes = {"discard": "old", "max_bytes": 1000, "max_age": 60, "num_replicas": 1}
    said = settings.problems(URL, "q", settings.wanted("q", 3) | changes)
    for words in ("drops what is old", "drops its oldest messages", "1 of 3 copies"):
        [line] = [each for each in said if words in each]
        assert line.startswith(f"{URL}: ") and "`nats stream edit q" in line
        assert "Nothing was written" not in line and "\n" not in line


def test_streams_beside_one_that_was_made_are_named() -> None:
    said = settings.made_beside(URL, "jbos", ["jobs", "mail"])
    assert said.startswith(f"{URL}: there was no stream jbos")
    assert "jobs, mail" in said and "`nats stream rm jbos`" in said


@pytest.mark.parametrize("replicas", [1, 2])
def test_too_few_copies_are_warned_of(replicas: int) -> None:
    [warning] = settings.check(URL, "q", settings.wanted("q", replicas))
    assert f"{replicas} of 3 copies" in warning
    assert "nats stream edit q --replicas=3" in warning


def test_the_largest_message_must_pass_the_servers() -> None:
    enough = MAX_MESSAGE_BYTES + settings.HEADERS_BYTES
    assert settings.too_small(enough) == ""
    assert "set max_payload" in settings.too_small(enough - 1)
    assert settings.check(URL, "q", settings.wanted("q", 3) | {"max_msg_size": enough}) == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://h/q", "nats://h:4222/q"),
        ("nats://h1:4222,h2,h3:1/queue-1_A", "nats://h1:4222,h2:4222,h3:1/queue-1_A"),
        ("tls://[::1]:65535/q", "tls://[::1]:65535/q"),
        ("nats://h/q?creds=/run/secret&monitor=8222", "nats://h:4222/q"),
        (f"nats://h/{'q' * MAX_NAME}", f"nats://h:4222/{'q' * MAX_NAME}"),
    ],
)
def test_a_url_is_shown_with_its_ports_and_without_its_options(url: str, shown: str) -> None:
    assert is_stream(url)
    address = parse(url)
    assert address.shown == shown
    assert parse(address.shown) == address._replace(creds=None, monitors=())


def test_the_options_of_a_url() -> None:
    address = parse("nats://h/q?creds=/run/secret&monitor=8222")
    assert (address.creds, address.monitors) == ("/run/secret", (8222,))
    assert parse("nats://h,h:2/q?monitor=8222").monitors == (8222, 8222)
    assert parse("nats://h,h:2/q?monitor=8222,8223").monitors == (8222, 8223)


@pytest.mark.parametrize(
    "url",
    [
        "nats://", "nats:///q", "nats://h", "nats://h/", "nats://h/a/b", "nats://h/a.b",
        "nats://h/a*", "nats://h/q#x", "nats://h,/q", "nats://h:0/q", "nats://h:65536/q",
        "nats://h:x/q", "nats://[::1/q", "nats://h/q?credentials=x", "nats://h/q?monitor=x",
        "nats://h/q?monitor=", "nats://h/q?creds=", "nats://h/q?monitor=1&monitor=2",
        "nats://h,i/q?monitor=1,2,3", "nats://h/q?monitor=1,2", "nats://h,i/q?monitor=1,",
        "http://h/q", "nats://h/é", f"nats://h/{'q' * (MAX_NAME + 1)}", "nats://h q/q",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_stream_is_refused(url: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(url)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["nats://user:hunter2@h/q", "nats://hunter2@h/q", "tls://h1,user:hunter2@h2/q"]
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Refused, match="creds=FILE") as refused:
        parse(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "/var/lib/queue",
        "nats",
        "s3://bucket/x",
        "nats:/x",
        "tls",
        "tls://secret@h:1?ca=/etc/ca.pem",
    ],
)
def test_what_is_no_stream(text: str) -> None:
    assert not is_stream(text)


def test_a_copy_counts_if_its_server_is_there_and_it_has_all() -> None:
    def copy(name: str, current: bool, offline: bool = False) -> dict[str, object]:
        return {"name": name, "current": current, "offline": offline}

    def found(leader: str | None, *replicas: dict[str, object]) -> Copies:
        cluster = {"leader": leader, "replicas": list(replicas)}
        return settings.copies_of({"config": {"num_replicas": 3}, "cluster": cluster})

    whole = found("n1", copy("n3", True), copy("n2", True))
    assert whole == Copies(3, "n1", ("n1", "n2", "n3"), ()) and whole.missing == 0
    for gone in (copy("n2", False), copy("n2", True, True)):
        short = found("n1", copy("n3", True), gone)
        assert short == Copies(3, "n1", ("n1", "n3"), ("n2",)) and short.missing == 1
    assert str(short) == "2 of 3 copies current, not n2; led by n1"
    without = found(None, copy("n3", True))
    assert without.missing == 2 and str(without).endswith("; without a leader")
    alone = settings.copies_of({"config": {"num_replicas": 1}})
    assert alone.missing == 0 and alone.leader == settings.NATS
