"""The commands of the `Model`: each is carried out, and what it is answered with is given; an empty
string: it waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.queue import FIFO, FOREVER, LIMIT, REFUSED, TICKS, Job, Model, Peer

NOT_FOUND = "NOT_FOUND\r\n"


class Commands(Model):
    """A server that is talked to.  ``number`` is a connection's, in each method."""

    # Puts.

    def refusal(self, tube: str, jobs: list[Job]) -> str:
        """Say why new jobs are not taken; empty if they are."""
        if self.is_draining:
            return "DRAINING"
        if max([len(job.body) for job in jobs], default=0) > self.most(tube, "max-job-size"):
            return "JOB_TOO_BIG"
        there = self.of(tube) if jobs else []
        count, size = self.measured(jobs)
        if len(there) + count > self.most(tube, "max-jobs"):
            return REFUSED
        size += sum(len(job.body) for job in there)
        return REFUSED if size > self.most(tube, "max-bytes") else ""

    def measured(self, jobs: list[Job]) -> tuple[int, int]:
        """Give the number of new jobs, and the bytes of their bodies."""
        return len(jobs), sum(len(job.body) for job in jobs)

    def new_ones(self, tube: str, jobs: list[Job]) -> list[Job]:
        """Give those of the jobs that have no unique key which is taken."""
        keys: set[str] = set()
        found = []
        for job in jobs:
            if not job.unique or not (job.unique in keys or self.holder_of(tube, job.unique)):
                found.append(job)
                keys.add(job.unique)
        return found

    def put(
        self, number: int, jobs: list[Job], *, is_batch: bool, at: int | None = None
    ) -> str:  # fmt: skip
        """Put jobs, which have ids that they get if they are new.

        :param at: when they are ready, in place of their delays.
        """
        tube = self.peers[number].using
        new = self.new_ones(tube, jobs)
        refusal = self.refusal(tube, new)
        if refusal:
            return f"{refusal}\r\n"
        holders = []
        for job in jobs:
            holder = self.holder_of(tube, job.unique) if job.unique else None
            holders.append(holder[0] if holder else 0)
            if holder is None:
                if at is not None:
                    job.delay = max(0, -((self.now - at) // TICKS))
                self.enter(job, tube, self.ahead(job.delay) if at is None else at)
        self.settle()
        lines = [f"INSERTED_BATCH {len(jobs)}\r\n"] if is_batch else []
        for job, job_id in zip(jobs, holders, strict=True):
            there = self.jobs.get(job_id)
            state = f" {there.state.upper()}" if there else " DELETED" if job_id else ""
            lines.append(f"INSERTED {job_id or job.job_id}{state}\r\n")
        return "".join(lines)

    def enter(self, job: Job, tube: str, due: int) -> None:
        """A job is new, and delayed until then."""
        job.tube = job.home = tube
        job.created = job.since = self.now
        self.remembered.pop((tube, job.unique), None)
        self.let_go(job, due)
        if job.after and self.members(job.after):
            job.state, job.due = "delayed", FOREVER
        self.jobs[job.job_id] = job

    # Reserves.

    def choices(self, number: int) -> list[Job]:
        """Give the jobs of which one is handed out next: the best, or of each tube the best."""
        peer = self.peers[number]
        if peer.mode == FIFO:
            return self.open_jobs(peer.watched)[:1]
        return [job for tube in peer.watched for job in self.open_jobs([tube])[:1]]

    def reserve(self, number: int, timeout: int | None, chosen: int = 0) -> str:
        """:param chosen: the id of the job that the server has chosen, where it has a choice."""
        found = self.choices(number)
        best = next((job for job in found if job.job_id == chosen), (*found, None)[0])
        if best is not None:
            self.note_turn(number, found, best)
            return self.take(best, number)
        if self.is_soon(number):
            return "DEADLINE_SOON\r\n"
        if timeout == 0 or self.peers[number].sends_no_more:
            return "TIMED_OUT\r\n"
        self.peers[number].waits = self.step
        self.peers[number].until = FOREVER if timeout is None else self.ahead(timeout)
        return ""

    def reserve_batch(
        self, number: int, count: int, chosen: Sequence[int] = (), is_timed: bool = False
    ) -> str:
        """See `reserve`.

        :param is_timed: whether it is told how long to wait: not at all.
        """
        if is_timed and not self.choices(number):
            said = self.reserve(number, 0)
            return "RESERVED_BATCH 0\r\n" if said == "TIMED_OUT\r\n" else said
        taken = []
        for at in range(count):
            found = self.choices(number)
            if found:
                wanted = [job for job in found if job.job_id in chosen[at : at + 1]]
                self.note_turn(number, found, (wanted or found)[0])
                taken.append(self.take((wanted or found)[0], number))
        return f"RESERVED_BATCH {len(taken)}\r\n" + "".join(taken)

    def reserve_job(self, number: int, job_id: int) -> str:
        """A pause and the limits of its tube are passed by; a concurrency key is not."""
        job = self.jobs.get(job_id)
        if job is None or job.state == "reserved" or not self.has_place(job):
            return NOT_FOUND
        return self.take(job, number)

    # Ends, one by one.

    def delete(self, number: int, ids: list[int], *, is_batch: bool) -> str:
        """Delete what the connection may delete."""
        deleted = 0
        for job_id in ids:
            job = self.is_seen(number, job_id)
            if job is not None:
                self.drop(job)
                deleted += 1
        self.settle()
        if is_batch:
            return f"DELETED_BATCH {deleted} {len(ids) - deleted}\r\n"
        return "DELETED\r\n" if deleted else NOT_FOUND

    def release(self, number: int, job_id: int, pri: int, delay: int) -> str:
        job = self.own(number, job_id)
        if job is None:
            return NOT_FOUND
        job.pri, job.delay = pri, delay
        job.releases += 1
        job.sure_reserves = job.reserves
        self.come_back(job, "release", delay)
        self.settle()
        return "RELEASED\r\n"

    def cancel_job(self, job_id: int) -> str:
        job = self.jobs.get(job_id)
        if job is None:
            return NOT_FOUND
        self.drop(job)
        self.settle()
        return "CANCELLED\r\n"

    def return_job(self, number: int, job_id: int, delay: int) -> str:
        job = self.own(number, job_id)
        if job is None:
            return NOT_FOUND
        job.reserves -= 1
        job.sure_reserves = job.reserves
        job.delay = delay or job.delay
        self.let_go(job, self.ahead(delay) if delay else 0)
        if self.ends_of_age(job) <= self.now:
            self.end_old()
        self.settle()
        return "RETURNED\r\n"

    def bury(self, number: int, job_id: int, pri: int) -> str:
        job = self.own(number, job_id)
        if job is None:
            return NOT_FOUND
        job.pri = pri
        self.entomb(job)
        self.settle()
        return "BURIED\r\n"

    def touch(self, number: int, job_id: int) -> str:
        job = self.own(number, job_id)
        if job is None:
            return NOT_FOUND
        job.due = self.ahead(job.ttr)
        return "TOUCHED\r\n"

    # Kicks.

    def kick_one(self, job: Job) -> None:
        """A job is ready, for who waits too."""
        self.let_go(job)
        job.kicks += 1
        job.sure_reserves = job.reserves
        self.serve()

    def kick(self, number: int, bound: int) -> str:
        tube = self.peers[number].using
        kicked = (self.of(tube, "buried") or self.of(tube, "delayed"))[:bound]
        for job in kicked:
            self.kick_one(job)
        self.settle()
        return f"KICKED {len(kicked)}\r\n"

    def kick_job(self, job_id: int) -> str:
        job = self.jobs.get(job_id)
        if job is None or job.state not in ("buried", "delayed"):
            return NOT_FOUND
        self.kick_one(job)
        self.settle()
        return "KICKED\r\n"

    def kick_dead(self, tube: str, bound: int) -> str:
        kicked = 0
        for job in self.letters(tube):
            is_free = not job.unique or not self.holder_of(tube, job.unique)
            if job.state == "buried" and is_free and kicked < bound:
                kicked += 1
                job.tube = tube
                self.revive(job)
                self.kick_one(job)
        self.settle()
        return f"KICKED {kicked}\r\n"

    # Moves, updates, flushes.

    def move(self, number: int, job_id: int, tube: str) -> str:
        job = self.is_seen(number, job_id)
        if job is None:
            return NOT_FOUND
        goes_back = job.dead_from == tube
        if (goes_back and job.unique) or (tube != job.tube and job.holds_key):
            holder = self.holder_of(tube, job.unique)
            if holder is not None:
                return f"DUPLICATE {holder[0]}\r\n"
        job.tube = tube
        job.sure_reserves = job.reserves
        if goes_back:
            self.revive(job)
        if job.state == "reserved":
            self.let_go(job)
        self.settle()
        return "MOVED\r\n"

    def revive(self, job: Job) -> None:
        """A dead letter is none any more."""
        job.dead_from, job.reason, job.since = "", "", job.created
        job.reserves = job.sure_reserves = job.timeouts = job.releases = 0

    def update(
        self, number: int, job_id: int, pri: int, delay: int, ttr: int, body: str | None
    ) -> str:  # fmt: skip
        job = self.is_seen(number, job_id)
        if job is None:
            return NOT_FOUND
        job.pri, job.delay, job.ttr = pri, delay, ttr
        job.sure_reserves = job.reserves
        job.body = job.body if body is None else body
        if job.state == "reserved":
            job.due = self.ahead(ttr)
        elif job.state != "buried" and not job.is_waiting:
            self.let_go(job, self.ahead(delay) if delay else 0)
        self.settle()
        return "UPDATED\r\n"

    def flush(self, tube: str, state: str, most: int = LIMIT, keys: int = LIMIT) -> str:
        """:param most: this many jobs, in their order, are deleted before it ends permanently.
        :param keys: after that, this many keys of deleted jobs are forgotten, if all jobs are.
        """
        states = ["delayed", "buried", "ready"] if state in ("", "all") else [state]
        flushed = [job for each in states for job in self.of(tube, each)][:most]
        is_all = state in ("", "all")
        for job in flushed:
            self.drop(job, forgets=is_all)
        if is_all and not self.of(tube, "delayed", "buried", "ready"):
            for at in [at for at in self.remembered if at[0] == tube][:keys]:
                del self.remembered[at]
        self.settle()
        return f"FLUSHED {len(flushed)}\r\n"

    # Tubes.

    def use(self, number: int, tube: str) -> str:
        self.peers[number].using = tube
        return f"USING {tube}\r\n"

    def watch(self, number: int, tube: str, weight: int = 1) -> str:
        peer = self.peers[number]
        peer.turns = {}
        peer.watched[tube] = weight
        return f"WATCHING {len(peer.watched)}\r\n"

    def ignore(self, number: int, tube: str) -> str:
        peer = self.peers[number]
        if peer.watched.keys() == {tube}:
            return "NOT_IGNORED\r\n"
        peer.turns = {}
        peer.watched.pop(tube, None)
        return f"WATCHING {len(peer.watched)}\r\n"

    def pause(self, tube: str, seconds: int) -> str:
        if tube not in self.tubes():
            return NOT_FOUND
        self.paused.pop(tube, None)
        if seconds:
            self.paused[tube] = self.ahead(seconds)
        self.settle()
        return "PAUSED\r\n"

    def set_policy(self, tube: str, rules: dict[str, str]) -> str:
        there = self.commands.setdefault(tube, {}) | rules
        self.commands[tube] = {key: value for key, value in there.items() if value != "-"}
        self.settle()
        return "POLICY\r\n"

    # Waiting for the end of a job, and no longer.

    def wait_job(self, number: int, job_id: int, seconds: int) -> str:
        job, peer = self.jobs.get(job_id), self.peers[number]
        if job is None:
            return NOT_FOUND
        if job.state == "buried":
            return "BURIED\r\n"
        if not seconds or peer.sends_no_more:
            return "TIMED_OUT\r\n"
        peer.waits_for, peer.until = job_id, self.ahead(seconds)
        return ""

    def end_wait(self, number: int) -> str:
        peer = self.peers[number]
        said = "TIMED_OUT\r\n" if peer.is_blocked else ""
        peer.waits, peer.waits_for, peer.until = 0, 0, FOREVER
        return said

    def cancel(self, number: int) -> str:
        return self.end_wait(number) + "CANCELLED\r\n"

    def half_close(self, number: int) -> str:
        self.peers[number].sends_no_more = True
        return self.end_wait(number)

    def hang_up(self, number: int, order: list[int]) -> None:
        """:param order: the jobs that the connection has, as the server lets go of them."""
        peer = self.peers[number]
        peer.waits, peer.waits_for = 0, 0
        for job_id in order:
            self.come_back(self.jobs[job_id], "disconnect")
            self.serve()
        self.peers[number] = Peer(self.step)
        self.settle()

    # Looks.

    def peek(self, job_id: int) -> str:
        return self.found([self.jobs[job_id]] if job_id in self.jobs else [])

    def peek_state(self, number: int, state: str) -> str:
        """Show the first job of the used tube in a state."""
        jobs = self.of(self.peers[number].using, state)
        if state == "ready":
            jobs.sort(key=lambda job: (not self.has_place(job), job.rank))
        elif state == "reserved":
            jobs.sort(key=lambda job: job.job_id)
        return self.found(jobs)

    def found(self, jobs: list[Job]) -> str:
        """Show the first of these jobs."""
        if not jobs:
            return NOT_FOUND
        return f"FOUND {jobs[0].job_id} {len(jobs[0].body)}\r\n{jobs[0].body}\r\n"

    def stats_group(self, group: str) -> dict[str, str] | None:
        """Give what is said of a group; None if there is none."""
        members = self.members(group)
        waiting = [job for job in self.jobs.values() if job.is_waiting and job.after == group]
        if not members and not waiting:
            return None
        counts = {each: str([job.state for job in members].count(each)) for each in STATES}
        return {
            "pending": str(len(members)), **counts,
            "complete": "false" if members else "true", "waiting-jobs": str(len(waiting)),
        }  # fmt: skip

    def listed(self, tube: str) -> list[dict[str, str]]:
        """Give what `list-jobs` says of a tube's jobs; of connections, which client it is."""
        jobs = [job for state in STATES for job in self.of(tube, state)]
        return [described(job, self.now) for job in jobs]


STATES = ("ready", "reserved", "delayed", "buried")


def described(job: Job, now: int) -> dict[str, str]:
    """What is said of a job."""
    counts = ("reserves", "timeouts", "releases", "buries", "kicks")
    is_timed = job.state in ("reserved", "delayed") and not job.is_waiting
    said = {
        "id": job.job_id, "pri": job.pri, "state": job.state, "size": len(job.body),
        "age": (now - job.created) // TICKS, "delay": job.delay, "ttr": job.ttr,
        "time-left": (job.due - now) // TICKS if is_timed else 0,
        **{name: getattr(job, name) for name in counts},
    }  # fmt: skip
    tags = {
        "connection": job.holder if job.state == "reserved" else "",
        "idempotency-key": job.unique, "idempotency-ttl": job.unique_s if job.unique else "",
        "group": job.group, "after-group": job.after, "concurrency-key": job.key,
        "concurrency-limit": job.limit or "", "metadata": job.metadata, "dead-from": job.dead_from,
        "dead-reason": job.reason, "dead-at": job.since // TICKS if job.dead_from else "",
        "origin": job.home if job.home != job.tube else "",
    }  # fmt: skip
    said |= {name: value for name, value in tags.items() if value != ""}
    return {name: str(value) for name, value in said.items()}
