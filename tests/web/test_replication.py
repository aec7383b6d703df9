"""
Replication over HTTP: what a standby serves, and what the active server tells of it.
"""

from __future__ import annotations

from twisted.internet.protocol import Factory
from twisted.internet.testing import StringTransport

from beanstalk_twisted.replication.roster import ACTIVE, STANDBY, Identity, Presence, Situation
from beanstalk_twisted.testing.memory_server import MemoryServer
from beanstalk_twisted.web.replication import PresentSite
from beanstalk_twisted.web.routes import OF_STANDBYS, ROUTES
from beanstalk_twisted.web.site import HttpSettings
from tests.web.browsing import Browser, site_of

US = Identity("a:11300", "01")
OTHER = Presence("b:11300", "02", STANDBY, 90, 900, "10.0.0.2:11300")
LEADS = Situation(ACTIVE, "", US, "a:11300", 3, 300, 0.25, (OTHER,), 1, 0)
FOLLOWS = Situation(STANDBY, "standby: follows", US, "b:11300", 7, 700, 1.5, (), 1, 1)


def browse(situation: Situation | None) -> Browser:
    """
    A server in this situation; None for one that is alone.
    """
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
    assert 'beanstalkd_replication_role{role="standby"} 1\n' in text
    assert "beanstalkd_replication_lag_seconds 1.5\n" in text
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
        {
            "name": "b:11300",
            "addresses": ["10.0.0.2:11300"],
            "position": 90,
            "lsn": 900,
            "is_in_sync": True,
        }
    ]
    assert (said["lag_records"], said["lag_bytes"], said["lag_s"]) == (3, 300, 0.25)
    text = browser.ask("GET", "/metrics").body.decode()
    assert "beanstalkd_replication_standbys 1\n" in text and "beanstalkd_current_jobs" in text
    assert "beanstalkd_replication_is_well 1\n" in text
    assert "beanstalkd_replication_is_in_sync 1\n" in text
    assert "beanstalkd_changes_refused_total 0\n" in text


def test_promote_that_is_refused_names_the_standbys() -> None:
    headers = {"X-Beanstalk-Request": "1"}
    reply = browse(LEADS).ask("POST", "/api/v1/replication/promote", b"{}", headers)
    assert reply.status == 409
    assert reply.json["detail"].endswith("; standbys: b:11300 (10.0.0.2:11300)")


def test_an_active_server_without_its_stream_is_not_ready() -> None:
    browser = browse(LEADS._replace(why="the stream has not answered"))
    assert browser.ask("GET", "/readyz").body == b"not ready: the stream has not answered\n"
    assert "beanstalkd_replication_is_well 0\n" in browser.ask("GET", "/metrics").body.decode()
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
    assert first.connections == 1 and present.acceptableProtocols() == [b"http/1.1"]
    present.show(second)
    assert transport.disconnecting
    other = present.buildProtocol(None)
    assert other is not None and second.connections == 1
    other.makeConnection(StringTransport())
    present.stopFactory()
