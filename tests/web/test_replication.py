"""Replication over HTTP: what a standby serves, and what the active server tells of it."""

from __future__ import annotations

import json

import pytest
from twisted.internet.protocol import Factory
from twisted.internet.testing import StringTransport

from beanstalk_twisted.replication.membership import ACTIVE, STANDBY, Identity, Presence, Situation
from beanstalk_twisted.replication.stream.interface import Copies
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.routes import OF_STANDBYS, ROUTES
from beanstalk_twisted.web.site import HttpSettings, PresentSite
from beanstalk_twisted.wire.replies import CannotHandOver, HandingOver
from tests.web.browsing import Browser, site_of
from tests.web.browsing import Reply as HttpReply

US = Identity("a:11300", "01")
OTHER = Presence("b:11300", "02", STANDBY, 90, 900, "10.0.0.2:11300")
COPIES = Copies(3, "n1", ("n1", "n3"), ("n2",))
LEADS = Situation(
    ACTIVE, "", US, "a:11300", 3, 300, 0.25, (OTHER,), 1, 0, copies=COPIES, stream="jobs"
)
FOLLOWS = Situation(
    STANDBY, "standby: follows", US, "b:11300", 7, 700, 1.5, (), 1, 1, stream="jobs"
)


def browse(situation: Situation | None) -> Browser:
    server = MemoryServer()
    server.service.situation = lambda: situation
    return Browser(site_of(server, HttpSettings(may_write=True)), server.clock)


def test_a_standby_serves_its_health_its_metrics_and_who_is_active() -> None:
    browser = browse(FOLLOWS)
    assert browser.ask("GET", "/healthz").status == 200
    ready = browser.ask("GET", "/readyz")
    assert (ready.status, ready.body) == (503, b"not ready: standby: follows\n")
    said = browser.ask("GET", "/api/v1/replication").json
    assert (said["role"], said["active"], said["lag_records"]) == ("standby", "b:11300", 7)
    text = browser.ask("GET", "/metrics").body.decode()
    assert 'beanstalkd_replication_role{stream="jobs",role="standby"} 1\n' in text
    assert 'beanstalkd_replication_lag_seconds{stream="jobs"} 1.5\n' in text
    assert "process_cpu_seconds_total" in text and "beanstalkd_current_jobs" not in text


def test_a_standby_refuses_all_else_and_names_who_is_active() -> None:
    browser = browse(FOLLOWS)
    refused = [each for each in ROUTES if each.operation not in OF_STANDBYS]
    assert len(refused) == len(ROUTES) - len(OF_STANDBYS) > 30
    for route in refused:
        path = route.path.replace("{", "").replace("}", "")
        reply = browser.ask(route.method, path)
        assert reply.status == 503, route
        assert reply.json["detail"] == "this server is a standby; active is b:11300"


def test_an_active_server_tells_of_its_standbys() -> None:
    browser = browse(LEADS)
    assert browser.ask("GET", "/readyz").status == 200
    said = browser.ask("GET", "/api/v1/replication").json
    assert said["role"] == "active" and said["why_not_ready"] == ""
    assert said["standbys"] == [
        {"name": "b:11300", "addresses": ["10.0.0.2:11300"], "position": 90, "lsn": 900,
         "is_in_sync": True},
    ]  # fmt: skip
    assert (said["lag_records"], said["lag_bytes"], said["lag_s"]) == (3, 300, 0.25)
    text = browser.ask("GET", "/metrics").body.decode()
    assert 'beanstalkd_replication_standbys{stream="jobs"} 1\n' in text
    assert "beanstalkd_current_jobs" in text
    assert 'beanstalkd_replication_is_well{stream="jobs"} 1\n' in text
    assert 'beanstalkd_replication_is_in_sync{stream="jobs"} 1\n' in text
    assert "beanstalkd_changes_refused_total 0\n" in text


def promote(body: bytes, answer: HandingOver | CannotHandOver) -> HttpReply:
    server = MemoryServer()
    server.service.queue.hand_over = lambda name: answer
    browser = Browser(site_of(server, HttpSettings(may_write=True)), server.clock)
    headers = {"X-Beanstalk-Request": "1"}
    return browser.ask("POST", "/api/v1/replication/promote", body, headers)


def test_promote_answers_who_takes_over_or_why_nobody_does() -> None:
    reply = promote(b"{}", HandingOver(b"b:11300"))
    assert (reply.status, reply.json) == (200, {"handed_over_to": "b:11300"})
    reply = promote(b'{"standby": "d"}', CannotHandOver("no standby d is there, but b:11300"))
    assert (reply.status, reply.json["detail"]) == (409, "no standby d is there, but b:11300")


@pytest.mark.parametrize("name", ["", "two words", "\u00e9"])
def test_promote_takes_no_name_that_is_none(name: str) -> None:
    body = json.dumps({"standby": name}).encode()
    reply = promote(body, HandingOver(b"b:11300"))
    assert reply.status == 400 and "standby" in reply.json["detail"]


def test_where_the_stream_is_stored_is_told_once_nats_has_said_so() -> None:
    unknown = browse(LEADS._replace(copies=None))
    assert unknown.ask("GET", "/api/v1/replication").json["stream"] is None
    assert b"stream_copies" not in unknown.ask("GET", "/metrics").body
    browser = browse(LEADS)
    said = browser.ask("GET", "/api/v1/replication").json["stream"]
    assert said == {"leader": "n1", "copies": 3, "current": ["n1", "n3"], "behind": ["n2"]}
    text = browser.ask("GET", "/metrics").body.decode()
    assert 'beanstalkd_replication_stream_copies{stream="jobs"} 3\n' in text
    assert 'beanstalkd_replication_stream_copies_current{stream="jobs"} 2\n' in text
    assert 'beanstalkd_replication_stream_has_leader{stream="jobs"} 1\n' in text


def test_an_active_server_without_its_stream_is_not_ready() -> None:
    browser = browse(LEADS._replace(why="the stream has not answered"))
    assert browser.ask("GET", "/readyz").body == b"not ready: the stream has not answered\n"
    text = browser.ask("GET", "/metrics").body.decode()
    assert 'beanstalkd_replication_is_well{stream="jobs"} 0\n' in text
    assert browser.ask("GET", "/api/v1/server").status == 200


def test_a_server_that_is_alone_says_so() -> None:
    browser = browse(None)
    assert browser.ask("GET", "/api/v1/replication").json == {"role": "alone"}
    assert b"replication" not in browser.ask("GET", "/metrics").body


def test_connections_end_with_the_term_whose_site_serves_them() -> None:
    present = PresentSite()
    assert present.buildProtocol(None) is None and present.acceptableProtocols() == []
    first, second = site_of(MemoryServer()), site_of(MemoryServer())
    present.show(first)
    present.startFactory()
    channel, transport = present.buildProtocol(None), StringTransport()
    assert channel is not None and isinstance(present, Factory)
    channel.makeConnection(transport)
    assert len(first.connections) == 1 and present.acceptableProtocols() == [b"http/1.1"]
    present.show(second)
    assert transport.disconnecting
    other = present.buildProtocol(None)
    assert other is not None and len(second.connections) == 1
    other.makeConnection(StringTransport())
    present.stopFactory()
