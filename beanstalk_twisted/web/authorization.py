"""Whom a request is of, and whether its route is for them: the access file, over HTTP."""

from http import HTTPStatus
from typing import Any

from twisted.internet.defer import Deferred, succeed

from beanstalk_twisted.access.rules import AccessRules
from beanstalk_twisted.access.tokens import TokenHash
from beanstalk_twisted.server.access.admissions import Known
from beanstalk_twisted.server.access.control import AccessControl
from beanstalk_twisted.server.access.peers import host_of, peer_of
from beanstalk_twisted.web.exchange import Refusal
from beanstalk_twisted.web.guards import Credentials, credentials_of
from beanstalk_twisted.web.routes import EVERYTHING, LOGIN, MANAGED, METRICS, SOME, Route
from beanstalk_twisted.wire.rights import LOOK, MANAGE

WHO: str = (
    "say who you are: the header Authorization with Bearer and a token, or with Basic, the token "
    "as the password"
)

LOOKER: str = "log in with a token that may look at all tubes"


def known_by(
    access: AccessControl, transport: Any, login: TokenHash | None, header: str
) -> "Deferred[Known]":
    """
    Find out who sends a request.

    :param login: the token that its login was begun with; None if it has none.  It comes before the
        header: browsers go on to send a password that they were once given.
    :param header: Authorization; empty if there is none.
    :return: fails with a `Refusal` if it shows a token that is nobody's.
    """
    peer = peer_of(transport)
    if login is not None or not header:
        return succeed(Known(peer, login))
    shown = credentials_of(header)
    if shown is None:
        raise Refusal(HTTPStatus.UNAUTHORIZED, WHO)
    told: Deferred[TokenHash | None] = Deferred(lambda _: withdraw())
    withdraw = access.authenticator.ask(host_of(transport), shown.token, told.callback)
    return told.addCallback(lambda found: _known(access.rules, Known(peer, found), shown))


def _known(rules: AccessRules, known: Known, shown: Credentials) -> Known:
    is_named = not shown.name or rules.identify(*known).name == shown.name
    if known.shown is None or not is_named:
        raise Refusal(HTTPStatus.UNAUTHORIZED, "the token is nobody's, or not of that name")
    return known


def check_route(rules: AccessRules, known: Known, route: Route) -> None:
    """:raise Refusal: the route is not for them."""
    if _is_for(rules, known, route):
        return
    if route.asks == LOGIN and known.shown is not None:
        raise Refusal(HTTPStatus.FORBIDDEN, LOOKER)
    raise refusal_of(known)


def refusal_of(known: Known | None) -> Refusal:
    """What those are told who have no right: who they are, if they have not said so."""
    if known is None or known.shown is None:
        return Refusal(HTTPStatus.UNAUTHORIZED, WHO)
    return Refusal(HTTPStatus.FORBIDDEN, "the access file gives no right to this")


def _is_for(rules: AccessRules, known: Known, route: Route) -> bool:
    grant = rules.identify(*known).grant
    if route.asks == METRICS and rules.has_open_metrics:
        return True
    if route.asks in (EVERYTHING, METRICS, LOGIN):
        return bool(grant.everywhere & LOOK)
    if route.asks == MANAGED:
        return bool(grant.everywhere & MANAGE)
    return route.asks != SOME or bool(grant.anywhere)
