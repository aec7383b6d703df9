"""
Puts the endpoint together: which function each operation of the table is.
"""

from twisted.internet.interfaces import IReactorTime

from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.health import Health
from beanstalk_twisted.web.lag import ReactorLag
from beanstalk_twisted.web.metrics import Metrics
from beanstalk_twisted.web.routes import RouteTable
from beanstalk_twisted.web.site import HttpSettings, Site


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
    site.parts += [lag, health.probe]
    site.operations = {
        "healthz": health.healthz,
        "readyz": health.readyz,
        "metrics": metrics.metrics,
    }
    return site
