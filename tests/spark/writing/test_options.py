"""The options of a write: what is taken, and what is said about the others."""

import pytest

from beanstalk_twisted.client.addresses import Address
from binlog_tools.spark.definitions.errors import SinkError
from binlog_tools.spark.writing.options import U32_MAX, WINDOW_JOBS, SinkOptions
from binlog_tools.tube_names import is_tube_name


def test_only_the_address_has_to_be_given() -> None:
    options = SinkOptions.of({"address": "queue:11301"})
    assert options == SinkOptions((Address("queue", 11301),))


def test_the_case_of_an_option_does_not_matter_and_servers_are_listed_with_commas() -> None:
    options = SinkOptions.of(
        {"ADDRESS": "a, b:1", "retrytimeout": "2.5", "resultPath": "/r", "TTR": "7", "tube": "mail"}
    )
    assert options.servers == (Address("a", 11300), Address("b", 1))
    assert (options.retry_s, options.result_path, options.ttr_s) == (2.5, "/r", 7)
    assert options.tube == b"mail"


def test_one_queue_on_several_hosts_is_one_server() -> None:
    options = SinkOptions.of({"address": "beanstalk://a,b:1, c, beanstalk://d", "token": "t"})
    assert [len(server.hosts) for server in options.servers] == [3, 1]
    assert {host.token for server in options.servers for host in server.hosts} == {"t"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, 'say which server: .option("address", "127.0.0.1:11300")'),
        ({"address": ""}, "address: it is empty; leave it out"),
        ({"address": "a", "token": ""}, "token: it is empty; leave it out"),
        ({"address": "a", "writeId": "a b"}, "writeId: 'a b' has not 1 to 120 of the characters"),
        ({"address": "a", "writeId": "x" * 121}, "writeId: 'xxxxxxxxxxxxxxxxxxxx' has not 1 to 12"),
        ({"address": "a", "batchId": "1"}, "batchId: give a writeId too"),
        ({"address": "a", "writeId": "x", "batchId": "-1"}, "batchId: '-1' is no whole number"),
        ({"address": "a", "resultPath": ""}, "resultPath: it is empty; leave it out"),
        ({"address": "a:b"}, "address: 'a:b' is no server: write HOST:PORT"),
        ({"address": "a", "tubes": "x"}, "there is no option 'tubes'; there are address, token"),
        ({"address": "a", "path": "/x"}, "a queue has no path"),
        ({"address": "a", "tube": "-x"}, "tube: '-x' is no name of a tube"),
        ({"address": "a", "ttr": "-1"}, "ttr: '-1' is no whole number from 0 to 4294967295"),
        ({"address": "a", "priority": str(U32_MAX + 1)}, "priority: '4294967296' is no whole"),
        ({"address": "a", "window": "0"}, "window: '0' is no whole number from 1 to 1000"),
        ({"address": "a", "window": str(WINDOW_JOBS + 1)}, "window: '1001' is no whole"),
        ({"address": "a", "retryTimeout": "nan"}, "retryTimeout: 'nan' is no number of seconds"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(SinkError) as raised:
        SinkOptions.of(wrong)
    assert str(raised.value).startswith(f"[SINK_OPTION] {said}")
    assert "\n" not in str(raised.value)


def test_a_priority_and_a_window_may_be_as_large_as_their_limits() -> None:
    options = SinkOptions.of({"address": "a", "priority": str(U32_MAX), "window": str(WINDOW_JOBS)})
    assert (options.priority, options.window_jobs) == (U32_MAX, WINDOW_JOBS)


@pytest.mark.parametrize("name", [b"a", b"a" * 200, b"mail-x+/;.$_()9"])
def test_these_are_names_of_tubes(name: bytes) -> None:
    assert is_tube_name(name)


@pytest.mark.parametrize("name", [b"", b"-a", b"a" * 201, b"a b", b"a\r\ndelete 1", b"\xc3\xa9"])
def test_these_are_not(name: bytes) -> None:
    assert not is_tube_name(name)
