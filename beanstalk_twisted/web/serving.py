"""
Puts the endpoint together: which function each operation of the table is.
"""

from twisted.internet.interfaces import IReactorTime

from beanstalk_twisted.server.service import BeanstalkService
from beanstalk_twisted.web.exchange import Operations
from beanstalk_twisted.web.health import Health
from beanstalk_twisted.web.routes import RouteTable
from beanstalk_twisted.web.site import HttpSettings, Site


def operations_of(service: BeanstalkService, reactor: IReactorTime) -> Operations:
    """
    What each operation of the table is, for this server.
    """
    health = Health(service, reactor)
    return {
        "healthz": health.healthz,
        "readyz": health.readyz,
    }


def make_site(service: BeanstalkService, settings: HttpSettings, reactor: IReactorTime) -> Site:
    """
    Make the endpoint of a server, for any number of ports.
    """
    return Site(operations_of(service, reactor), RouteTable(), settings, reactor)
