"""The API's operations that change something."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from beanstalk_twisted.client import errors
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.rules.policy_keys import ABSENT, BadRule, check_rule
from beanstalk_twisted.web.api.fields import body_of
from beanstalk_twisted.web.api.local_connection import LocalConnections
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document


class WritingApi:
    """Runs the commands that a client would send, and answers when these are answered, so what a
    reply tells is as durable as theirs.
    """

    def __init__(self, connections: LocalConnections) -> None:
        self._connections = connections

    def pause_tube(self, call: Call) -> "Deferred[Document]":
        tube, seconds = call.parameters["tube"], call.fields["seconds"]
        return self._run(call, lambda to: to.pause_tube(tube, seconds))

    def kick_tube(self, call: Call) -> "Deferred[Document]":
        tube, count = call.parameters["tube"], call.fields["count"]

        def kick(to: Connection) -> "Deferred[Any]":
            # It has to be there: `use` would make it.
            there: Deferred[Any] = to.stats_tube(tube)
            there.addCallback(lambda _: to.use(tube))
            return there.addCallback(lambda _: to.kick(count))

        return self._run(call, kick, "kicked")

    def flush_tube(self, call: Call) -> "Deferred[Document]":
        tube, state = call.parameters["tube"], call.fields["state"]
        return self._run(call, lambda to: to.flush_tube(tube, state), "flushed")

    def forget_key(self, call: Call) -> "Deferred[Document]":
        tube, key = call.parameters["tube"], call.fields["key"]
        return self._run(call, lambda to: to.forget_key(tube, key))

    def set_policy(self, call: Call) -> "Deferred[Document]":
        """Set keys of a policy, named as shown or as in `tube-policy`; null removes one."""
        tube = call.parameters["tube"]
        fields = {key.replace("_", "-"): value for key, value in call.fields.items()}
        if not all(value is None or isinstance(value, int | str) for value in fields.values()):
            raise Refusal(400, "values are numbers, strings or null")
        for key, value in fields.items():
            try:
                check_rule(key, ABSENT if value is None else str(value))
            except BadRule as wrong:
                raise Refusal(400, f"{wrong}; nothing was changed") from None
        return self._run(call, lambda to: to.tube_policy(tube, fields))

    def put_job(self, call: Call) -> "Deferred[Document]":
        tube, fields = call.parameters["tube"], call.fields
        body = body_of(fields)
        if body is None:
            raise Refusal(400, "a job has a body or a body_base64")

        def put(to: Connection) -> "Deferred[Any]":
            return to.put(
                body, tube=tube, priority=fields["priority"], delay=fields["delay"],
                ttr=fields["ttr"],
            )  # fmt: skip

        return self._run(call, put, "id")

    def kick_job(self, call: Call) -> "Deferred[Document]":
        return self._run(call, lambda to: to.kick_job(call.parameters["job"]))

    def delete_job(self, call: Call) -> "Deferred[Document]":
        return self._run(call, lambda to: to.delete(call.parameters["job"]))

    def cancel_job(self, call: Call) -> "Deferred[Document]":
        def cancel(to: Connection) -> "Deferred[Any]":
            return to.cancel_job(call.parameters["job"]).addErrback(_no_job)

        return self._run(call, cancel)

    def move_job(self, call: Call) -> "Deferred[Document]":
        job_id, tube = call.parameters["job"], call.fields["tube"]
        return self._run(call, lambda to: to.move_job(job_id, tube))

    def edit_job(self, call: Call) -> "Deferred[Document]":
        job_id, given = call.parameters["job"], call.fields
        body = body_of(given)

        def edit(to: Connection) -> "Deferred[Any]":
            return to.stats_job(job_id).addCallback(
                lambda stats: to.update_job(
                    job_id, given.get("priority", stats.pri),
                    given.get("delay", stats.time_left if stats.state == "delayed" else 0),
                    given.get("ttr", stats.ttr), body=body,
                )
            )  # fmt: skip

        return self._run(call, edit)

    def drain(self, call: Call) -> "Deferred[Document]":
        return self._run(call, lambda to: to.drain())

    def promote(self, call: Call) -> "Deferred[Document]":
        # An empty one is a mistake, and not whichever has the most.
        standby = call.fields.get("standby")
        return self._run(call, lambda to: to.promote(standby), "handed_over_to")

    def undrain(self, call: Call) -> "Deferred[Document]":
        return self._run(call, lambda to: to.undrain())

    def _run(
        self, call: Call, work: Callable[[Connection], Deferred[Any]], result: str = ""
    ) -> "Deferred[Document]":
        """:param result: what the commands' result is called, if it is shown."""
        done = self._connections.run(call, work)
        return done.addCallback(lambda value: json_document({result: value} if result else {}))


def _no_job(failure: Failure) -> None:
    """:raise Refusal: a job that is cancelled may be in any state, so there is none."""
    failure.trap(errors.NotFound)
    raise Refusal(404, "no such job") from None
