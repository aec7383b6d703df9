"""
Puts the endpoint together: which function each operation of the table is.
"""

from importlib import resources

from twisted.internet.interfaces import IReactorTime

from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.exchange import Document, Operations
from beanstalk_twisted.web.health import Health
from beanstalk_twisted.web.lag import ReactorLag
from beanstalk_twisted.web.live import Live
from beanstalk_twisted.web.local_connection import LocalConnections
from beanstalk_twisted.web.metrics import Metrics
from beanstalk_twisted.web.overview import Overview
from beanstalk_twisted.web.reading_api import ReadingApi
from beanstalk_twisted.web.routes import RouteTable
from beanstalk_twisted.web.site import HttpSettings, Site
from beanstalk_twisted.web.static_files import StaticFiles
from beanstalk_twisted.web.writing_api import WritingApi


def make_site(service: BeanstalkService, settings: HttpSettings, reactor: IReactorTime) -> Site:
    """
    Make the endpoint of a server, for any number of ports; from then on the server measures how
    long its jobs wait and run.
    """
    service.queue.measure_times()
    health, lag = Health(service, reactor), ReactorLag(reactor)
    site = Site({}, RouteTable(), settings, reactor)
    metrics = Metrics(
        service, lag.lags, lambda: (site.connections, site.refused, site.requests),
        settings.metrics_tubes, has_messagebird=settings.has_messagebird,
    )  # fmt: skip
    overview, static = Overview(service, may_write=settings.may_write), StaticFiles()
    live = Live(overview.figures, overview.about, overview.run, reactor)
    site.tell = service.audit.tell_request
    site.access = lambda: service.access
    site.parts += [lag, health.probe, live]
    site.operations = {
        "healthz": health.healthz,
        "readyz": health.readyz,
        "metrics": metrics.metrics,
        "console": static.index,
        "static": static.static,
        "live": live.stream,
        **_api(service, reactor),
    }
    return site


def _api(service: BeanstalkService, reactor: IReactorTime) -> Operations:
    connections = LocalConnections(service, reactor)
    reading, writing = ReadingApi(service, connections), WritingApi(connections)
    description = Document(resources.files(__package__).joinpath("openapi.json").read_bytes())
    return {
        "getDescription": lambda call: description,
        "getServer": reading.server,
        "getLog": reading.log,
        "listConnections": reading.connections,
        "listTubes": reading.tubes,
        "getTube": reading.tube,
        "listJobs": reading.jobs,
        "getJob": reading.job,
        "drain": writing.drain,
        "undrain": writing.undrain,
        "pauseTube": writing.pause_tube,
        "kickTube": writing.kick_tube,
        "flushTube": writing.flush_tube,
        "setPolicy": writing.set_policy,
        "putJob": writing.put_job,
        "kickJob": writing.kick_job,
        "deleteJob": writing.delete_job,
        "moveJob": writing.move_job,
        "editJob": writing.edit_job,
    }
