"""Puts the endpoint together: which function each operation of the table is."""

from importlib import resources

from twisted.internet.interfaces import IReactorTime

from beanstalk_twisted.server.execution_context import CommandTimes
from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.api.local_connection import LocalConnections
from beanstalk_twisted.web.api.log import LogApi
from beanstalk_twisted.web.api.reading import ReadingApi
from beanstalk_twisted.web.api.runs import Runs
from beanstalk_twisted.web.api.search import SearchApi
from beanstalk_twisted.web.api.seeing import Seeing
from beanstalk_twisted.web.api.writing import WritingApi
from beanstalk_twisted.web.exchange import Call, Document, Operations, json_document
from beanstalk_twisted.web.figures.lag import ReactorLag
from beanstalk_twisted.web.figures.metrics import Metrics
from beanstalk_twisted.web.figures.overview import Overview
from beanstalk_twisted.web.figures.tube_history import TubeHistory
from beanstalk_twisted.web.health import Health
from beanstalk_twisted.web.live import Live
from beanstalk_twisted.web.logins import Logins
from beanstalk_twisted.web.replication import replication_document, why_closed
from beanstalk_twisted.web.routes import RouteTable
from beanstalk_twisted.web.site import HttpSettings, Site
from beanstalk_twisted.web.static_files import StaticFiles


def make_site(service: BeanstalkService, settings: HttpSettings, reactor: IReactorTime) -> Site:
    """
    Make the endpoint of a server, for any number of ports; from then on the server measures how
    long its jobs wait and run, and its commands take.

    """
    service.queue.measure_times()
    service.context.times = CommandTimes()
    health, lag = Health(service, reactor), ReactorLag(reactor)
    site = Site({}, RouteTable(), settings, reactor)
    overview = Overview(service, may_write=settings.may_write)
    metrics = Metrics(
        service, lag.lags, lambda: (len(site.connections), site.connections.closed, site.requests),
        settings.metrics_tubes, overview.oldest,
    )  # fmt: skip
    static = StaticFiles()
    live = Live(overview.figures, overview.about, overview.run, reactor)
    site.begin, site.tell = service.audit.begin_request, service.audit.tell_request
    site.access = lambda: service.access
    site.why_closed = lambda: why_closed(service.situation())
    history = TubeHistory(
        service.queue.state, lambda: service.now_ns() + service.clock.wall_offset_ns(), reactor
    )
    connections = LocalConnections(service, reactor)
    seeing = Seeing(service)
    runs = Runs(service, connections, reactor, seeing)
    site.parts += [lag, health.probe, live, history, runs]
    site.operations = {
        "healthz": health.healthz,
        "readyz": health.readyz,
        "metrics": metrics.metrics,
        "console": static.index,
        "static": static.static,
        "login": static.login,
        **_logins(site.logins),
        "live": live.stream,
        "getTubeHistory": history.history,
        **_api(service, connections),
        **_many(service, runs, seeing),
    }
    return site


def _logins(logins: Logins) -> Operations:
    """What begins and ends the logins of browsers."""

    def begin(call: Call) -> Document:
        """Whoever is known without a token needs no login."""
        shown = None if call.known is None else call.known.shown
        if shown is None:
            return json_document({})
        cookie = logins.begin(shown, call.headers, is_secure=call.is_secure)
        return json_document({})._replace(headers={"Set-Cookie": cookie})

    def end(call: Call) -> Document:
        cookie = logins.end(call.headers, is_secure=call.is_secure)
        return json_document({})._replace(headers={"Set-Cookie": cookie})

    return {"beginLogin": begin, "endLogin": end}


def _many(service: BeanstalkService, runs: Runs, seeing: Seeing) -> Operations:
    """What looks at many jobs at once, or changes them."""
    search = SearchApi(service, seeing)
    return {
        "search": search.search,
        "listGroups": search.groups,
        "listRuns": runs.runs,
        "beginRun": runs.begin,
        "getRun": runs.run,
        "stopRun": runs.stop_run,
    }


def _api(service: BeanstalkService, connections: LocalConnections) -> Operations:
    reading, writing = ReadingApi(service, connections), WritingApi(connections)
    log = LogApi(service)
    description = Document(resources.files(__package__).joinpath("openapi.json").read_bytes())
    return {
        "getDescription": lambda call: description,
        "getServer": reading.server,
        "getLog": log.log,
        "listSegments": log.segments,
        "listConnections": reading.connections,
        "listTubes": reading.tubes,
        "getTube": reading.tube,
        "listJobs": reading.jobs,
        "getJob": reading.job,
        "drain": writing.drain,
        "undrain": writing.undrain,
        "getReplication": lambda call: replication_document(service.situation()),
        "promote": writing.promote,
        "pauseTube": writing.pause_tube,
        "kickTube": writing.kick_tube,
        "flushTube": writing.flush_tube,
        "forgetKey": writing.forget_key,
        "setPolicy": writing.set_policy,
        "listPolicyKeys": reading.policy_keys,
        "putJob": writing.put_job,
        "kickJob": writing.kick_job,
        "deleteJob": writing.delete_job,
        "moveJob": writing.move_job,
        "editJob": writing.edit_job,
    }
