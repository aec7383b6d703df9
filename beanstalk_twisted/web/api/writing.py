"""The API's operations that change something."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from beanstalk_twisted.client.commands.methods import DEFAULT_PRIORITY
from beanstalk_twisted.client.commands.specs import DEFAULT_TTR_S
from beanstalk_twisted.client.connection import Connection
from beanstalk_twisted.rules.policy_keys import ABSENT, BadRule, check_rule
from beanstalk_twisted.web.api import fields as api_fields
from beanstalk_twisted.web.api.local_connection import LocalConnections
from beanstalk_twisted.web.exchange import Call, Document, Refusal, json_document
from beanstalk_twisted.wire.grammar import MAX_U32

FLUSHED: tuple[str, ...] = ("ready", "delayed", "buried", "all")


class WritingApi:
    """Runs the commands that a client would send, and answers when these are answered, so what a
    reply tells is as durable as theirs.
    """

    def __init__(self, connections: LocalConnections) -> None:
        self._connections = connections

    def pause_tube(self, call: Call) -> "Deferred[Document]":
        """Pause a tube for ``seconds``; 0 ends a pause."""
        tube, fields = call.parameters["tube"], api_fields.fields_of(call.body)
        seconds = api_fields.number(fields, "seconds", None)
        return self._run(call, fields, lambda to: to.pause_tube(tube, seconds))

    def kick_tube(self, call: Call) -> "Deferred[Document]":
        """Kick up to ``count`` jobs of a tube, or all."""
        tube, fields = call.parameters["tube"], api_fields.fields_of(call.body)
        count = api_fields.number(fields, "count", MAX_U32)

        def kick(to: Connection) -> "Deferred[Any]":
            # It has to be there: `use` would make it.
            there: Deferred[Any] = to.stats_tube(tube)
            there.addCallback(lambda _: to.use(tube))
            return there.addCallback(lambda _: to.kick(count))

        return self._run(call, fields, kick, "kicked")

    def flush_tube(self, call: Call) -> "Deferred[Document]":
        """Delete the jobs of a tube that are in a ``state``."""
        tube, fields = call.parameters["tube"], api_fields.fields_of(call.body)
        state = fields.pop("state", None)
        if state not in FLUSHED:
            raise Refusal(400, f"state says which jobs are deleted: one of {', '.join(FLUSHED)}")

        def flush(to: Connection) -> "Deferred[Any]":
            # A tube that is not there is a wrong address, and not an empty one.
            there: Deferred[Any] = to.stats_tube(tube)
            return there.addCallback(lambda _: to.flush_tube(tube, state))

        return self._run(call, fields, flush, "flushed")

    def forget_key(self, call: Call) -> "Deferred[Document]":
        """Forget the unique ``key`` of a deleted job of a tube."""
        tube, fields = call.parameters["tube"], api_fields.fields_of(call.body)
        key = fields.pop("key", None)
        if not isinstance(key, str) or not key:
            raise Refusal(400, "key is the unique key to forget, a string")
        return self._run(call, fields, lambda to: to.forget_key(tube, key))

    def set_policy(self, call: Call) -> "Deferred[Document]":
        """Set keys of a policy, named as shown or as in `tube-policy`; null removes one."""
        tube, given = call.parameters["tube"], api_fields.fields_of(call.body)
        fields = {key.replace("_", "-"): value for key, value in given.items()}
        if not all(value is None or isinstance(value, int | str) for value in fields.values()):
            raise Refusal(400, "values are numbers, strings or null")
        for key, value in fields.items():
            try:
                check_rule(key, ABSENT if value is None else str(value))
            except BadRule as wrong:
                raise Refusal(400, f"{wrong}; nothing was changed") from None
        return self._run(call, {}, lambda to: to.tube_policy(tube, fields))

    def put_job(self, call: Call) -> "Deferred[Document]":
        tube, fields = call.parameters["tube"], api_fields.fields_of(call.body)
        body = api_fields.body_of(fields)
        if body is None:
            raise Refusal(400, "a job has a body or a body_base64")
        priority = api_fields.number(fields, "priority", DEFAULT_PRIORITY)
        delay = api_fields.number(fields, "delay", 0)
        ttr = api_fields.number(fields, "ttr", DEFAULT_TTR_S)

        def put(to: Connection) -> "Deferred[Any]":
            return to.put(body, tube=tube, priority=priority, delay=delay, ttr=ttr)

        return self._run(call, fields, put, "id")

    def kick_job(self, call: Call) -> "Deferred[Document]":
        return self._of_job(call, lambda to, job_id: to.kick_job(job_id))

    def delete_job(self, call: Call) -> "Deferred[Document]":
        """Delete a job that no connection has reserved."""
        return self._of_job(call, lambda to, job_id: to.delete(job_id))

    def move_job(self, call: Call) -> "Deferred[Document]":
        fields = api_fields.fields_of(call.body)
        job_id, tube = api_fields.job_id(call.parameters), api_fields.text(fields, "tube")
        return self._run(call, fields, lambda to: to.move_job(job_id, tube))

    def edit_job(self, call: Call) -> "Deferred[Document]":
        """Change ``body``, ``priority``, ``delay`` or ``ttr``; what is not given stays."""
        job_id, fields = api_fields.job_id(call.parameters), api_fields.fields_of(call.body)
        body = api_fields.body_of(fields)
        given = {
            name: api_fields.number(fields, name, None)
            for name in ("priority", "delay", "ttr")
            if name in fields
        }

        def edit(to: Connection) -> "Deferred[Any]":
            return to.stats_job(job_id).addCallback(
                lambda stats: to.update_job(
                    job_id, given.get("priority", stats.pri),
                    given.get("delay", stats.time_left if stats.state == "delayed" else 0),
                    given.get("ttr", stats.ttr), body=body,
                )
            )  # fmt: skip

        return self._run(call, fields, edit)

    def drain(self, call: Call) -> "Deferred[Document]":
        """Refuse new jobs."""
        return self._run(call, api_fields.fields_of(call.body), lambda to: to.drain())

    def promote(self, call: Call) -> "Deferred[Document]":
        """Hand over to a standby; answers its name."""
        fields = api_fields.fields_of(call.body)
        # An empty one is a mistake, and not whichever has the most.
        standby = api_fields.text(fields, "standby") if "standby" in fields else None
        return self._run(call, fields, lambda to: to.promote(standby), "handed_over_to")

    def undrain(self, call: Call) -> "Deferred[Document]":
        """Take new jobs again."""
        return self._run(call, api_fields.fields_of(call.body), lambda to: to.undrain())

    def _of_job(
        self, call: Call, work: Callable[[Connection, int], Deferred[Any]]
    ) -> "Deferred[Document]":
        job_id = api_fields.job_id(call.parameters)
        return self._run(call, api_fields.fields_of(call.body), lambda to: work(to, job_id))

    def _run(
        self, call: Call, fields: dict[str, Any], work: Callable[[Connection], Deferred[Any]],
        result: str = "",
    ) -> "Deferred[Document]":  # fmt: skip
        """:param fields: those that no operation has taken.
        :param result: what the commands' result is called, if it is shown.
        """
        api_fields.no_more(fields)
        done = self._connections.run(call, work)
        return done.addCallback(lambda value: json_document({result: value} if result else {}))
