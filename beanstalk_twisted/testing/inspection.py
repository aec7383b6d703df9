"""Looking at a double: what was asked of it, and what is in it."""

from collections import Counter

from beanstalk_twisted.client.stats import JobStats, ServerStats, TubeStats
from beanstalk_twisted.jobs.session import Session
from beanstalk_twisted.testing.assertions import Assertions
from beanstalk_twisted.testing.harness import Harness
from beanstalk_twisted.testing.recording import Command
from beanstalk_twisted.testing.views import JobView, chosen, look


class Inspection(Harness, Assertions):
    """What can be seen of a double.  Inspection changes nothing, counters included."""

    @property
    def commands(self) -> list[Command]:  # type: ignore[override]
        """Every command that was received, in order, since the start or `clear`."""
        with self._turn():
            return list(self.server.recorder.commands)

    def counts(self) -> Counter[str]:
        """How often each command was received, by its name."""
        return Counter(command.name for command in self.commands if command.name)

    def jobs(self, tube: str | None = None, state: str | None = None) -> list[JobView]:
        """
        Give the jobs that are there, by tube and state, and in each in the order of their turn.

        :param state: ``ready``, ``reserved``, ``delayed`` or ``buried``; all for None.
        """
        with self._turn():
            views = look(self._service.queue.state, self._service.clock.now_ns())
        return chosen(views, tube, state)

    def tubes(self) -> list[str]:
        """Name the tubes, as ``list-tubes`` does."""
        with self._turn():
            return [tube.name.decode() for tube in self._service.queue.state.tubes.in_order]

    def waiting(self, tube: str | None = None) -> int:
        """Say how many connections wait with a ``reserve``, for this tube or any."""
        with self._turn():
            sessions = self._service.queue.state.sessions.values()
            watched = [
                [each.name.decode() for each in session.watching]
                for session in sessions
                if session.is_waiting
            ]
        return sum(1 for names in watched if tube is None or tube in names)

    def stats(self) -> ServerStats:
        """Give what ``stats`` answers."""
        return ServerStats(self._content("stats"))

    def stats_tube(self, tube: str) -> TubeStats:
        """
        Give what ``stats-tube`` answers.

        :raise LookupError: there is no such tube.
        """
        return TubeStats(self._content("stats-tube", tube.encode()))

    def stats_job(self, job_id: int) -> JobStats:
        """
        Give what ``stats-job`` answers.

        :raise LookupError: there is no such job.
        """
        return JobStats(self._content("stats-job", job_id))

    def _content(self, command: str, *args: bytes | int) -> bytes:
        """
        Carry out a command that gives statistics, without a connection: none looks at who asks.
        """
        with self._turn():
            context, now_ns = self._service.context, self._service.clock.now_ns()
            session = Session(0, context.queue.state.default())
            answer = context.methods[command](session, now_ns, *args)
        assert answer is not None
        reply, _ = answer
        content: bytes | None = getattr(reply, "content", None)
        if content is None:
            about = " ".join(arg.decode() if isinstance(arg, bytes) else str(arg) for arg in args)
            why = reply.encode().decode().strip()
            raise LookupError(f"{command} {about}: {why}")
        return content
