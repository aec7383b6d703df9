"""Where the histories of `everything` begin: with jobs in all states, and with scenes in which
something happens that chance seldom brings about.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from tests.binlog.memory import MemoryDirectory
from tests.stateful.crashing import CRASHES, Crash
from tests.stateful.drawing import CLIENTS, NEW_JOB, PLACE, RULES, TUBE, TUBES, WHO, NewJob
from tests.stateful.everything import Everything
from tests.stateful.talking import RuledServer

# The first one is drawn most.
DEEDS = st.sampled_from(["die", "hold", "bury", "die", ""])
SCENES = st.lists(
    st.tuples(
        st.sampled_from([
            "kick", "forget", "bury", "rival", "back off", "end", "share", "wait", "fill", "group",
            "hurry", "update",
        ]),
        WHO, PLACE, NEW_JOB, st.sampled_from([-1, -1, 1]),
    ), min_size=2, max_size=4,
)  # fmt: skip


Scene = tuple[str, int, int, NewJob, int]


class Scenes(Everything):
    """All commands, behind a few scenes."""

    @initialize(
        pairs=st.lists(st.tuples(TUBE, RULES), max_size=8),
        jobs=st.lists(st.tuples(TUBE, NEW_JOB), min_size=8, max_size=12),
        deeds=st.lists(DEEDS, min_size=6, max_size=12),
        crashes=CRASHES,
        scenes=SCENES,
    )
    def start(
        self,
        pairs: list[tuple[str, str]],
        jobs: list[tuple[str, NewJob]],
        deeds: list[str],
        crashes: list[Crash],
        scenes: list[Scene],
    ) -> None:
        """Each history begins with jobs in all states, dead letters among them, and with what is
        done to them seldom otherwise.
        """
        self.server = RuledServer(directory=MemoryDirectory(), segment_bytes=8192)
        self.model = self.commands(CLIENTS, self.backoff_ends, TUBES)
        self.connect()
        for tube, pair in pairs:
            self.set_policy(0, tube, [pair])
        for tube, job in jobs:
            self.put(0, tube, [job], is_batch=False)
        for place, deed in enumerate(deeds):
            self.do_to_one(place, deed)
        for scene in scenes:
            if self.anybody:
                self.play(*scene)
                self.all_jobs_are_listed_as_the_model_has_them()
        self.crash_in_commands(crashes)

    def play(self, name: str, number: int, place: int, job: NewJob, edge: int) -> None:
        """Do what needs something that may be there now, close to an edge."""
        if name == "kick":
            self.kick_dead(number, 0, edge)
        elif name == "end" and self.letters():
            self.end_dead(number, place, 2)
        elif name == "share":
            self.share(number, (3, 1), 6 + place % 4)
        elif name == "wait":
            self.wait_for_what_is_due()
        elif name == "bury":
            self.bury_awaited(number, place)
        elif name == "back off":
            self.back_off(number, place)
        elif name == "fill":
            self.fill(number, place, edge)
        elif name == "update":
            self.update(number, place, 0, 0, (7, 100)[place % 2], None, "reserved")
        elif name == "hurry":
            self.hurry(number, TUBES[place % len(TUBES)])
        elif name == "group":
            self.end_group(number, TUBES[place % len(TUBES)])
        elif name in ("forget", "rival") and self.keys():
            leaving = [each.job_id for each in self.model.jobs.values()
                       if each.holds_key and each.unique_s and each.holder < 0]  # fmt: skip
            if name == "forget" and leaving:
                self.delete_one(number, leaving[0])
            self.put_rival(number, 0 if leaving else place, job, False, edge)

    def back_off(self, number: int, place: int) -> None:
        """Have a job come back that is to be tried again after some time."""
        tube = TUBES[place % len(TUBES)]
        self.set_policy(number, tube, ["backoff=10:2:20", "max-reserves=-"])
        ready = self.model.open_jobs([tube])
        if not ready:
            return
        number, job_id = self.idle(number), ready[0].job_id
        self.talk(
            number, f"reserve-job {job_id}\r\n",
            lambda heard: self.model.reserve_job(number, job_id),
        )  # fmt: skip
        self.talk(
            number, f"release {job_id} 0 {place % 2}\r\n",
            lambda heard: self.model.release(number, job_id, 0, place % 2),
        )  # fmt: skip

    def fill(self, number: int, place: int, edge: int) -> None:
        """Put a batch into a tube that takes all of it but one, or but one byte, or just takes
        it.
        """
        batch: list[NewJob] = [(0, 0, 100, body, "", "", "", "") for body in ("yz", "", "body")]
        size = len(batch) if place % 2 else sum(len(job[3]) for job in batch)
        most = f"max-{'jobs' if place % 2 else 'bytes'}=~{size + min(edge, 0)}"
        tube = TUBES[place % len(TUBES)]
        self.set_policy(number, tube, ["max-jobs=-", "max-bytes=-"])
        if self.anybody:
            self.set_policy(number, tube, ["max-job-size=-", most])
            self.put(number, tube, batch, True)

    def hurry(self, number: int, tube: str) -> None:
        """Reserve more than a tube with a rate hands out at once, behind some time."""
        self.set_policy(number, tube, ["max-jobs=-", "max-bytes=-"])
        for rules in (["max-job-size=-", "max-reserved=-"], ["rate=8:2"]):
            if self.anybody:
                self.set_policy(number, tube, rules)
        if self.anybody:
            self.put(number, tube, [(0, 0, 100, "", "", "", "", "")] * 5, True)
            self.pass_time(1)
        if self.anybody:
            self.reserve_batch(number, 20, "")

    def end_group(self, number: int, tube: str) -> None:
        """Delete the jobs of a group, one by one, while another one waits for it."""
        names = [("g", ""), ("g", ""), ("", "g")]
        self.put(number, tube, [(0, 0, 100, "", "", "", *each) for each in names], True)
        for job in self.model.members("g"):
            if job.holder < 0 and self.anybody:
                self.delete_one(number, job.job_id)
                self.all_jobs_are_listed_as_the_model_has_them()

    def delete_one(self, number: int, job_id: int) -> None:
        number = self.idle(number)
        self.talk(
            number, f"delete {job_id}\r\n",
            lambda heard: self.model.delete(number, [job_id], is_batch=False),
        )  # fmt: skip

    def bury_awaited(self, number: int, place: int) -> None:
        """Bury a job that somebody waits for."""
        job_id = self.pick(place, "reserved")
        job = self.model.jobs.get(job_id)
        if job is None or job.holder < 0 or self.model.peers[job.holder].is_blocked:
            return
        holder, other = job.holder, self.idle(number)
        if other != holder:
            self.talk(
                other, f"wait-job {job_id} 50\r\n",
                lambda heard: self.model.wait_job(other, job_id, 50),
            )  # fmt: skip
        self.talk(holder, f"bury {job_id} 0\r\n", lambda heard: self.model.bury(holder, job_id, 0))

    def do_to_one(self, place: int, deed: str) -> None:
        """Have a job reserved, and buried or lost for good by its first release."""
        if not deed or not self.anybody:
            return
        number, job_id = self.idle(place), self.pick(place, "ready", "delayed")
        if deed == "die" and job_id in self.model.jobs:
            self.set_policy(number, self.model.jobs[job_id].tube, ["max-reserves=1"])
        self.talk(
            number, f"reserve-job {job_id}\r\n",
            lambda heard: self.model.reserve_job(number, job_id),
        )  # fmt: skip
        if deed == "bury":
            self.bury(number, place, 0)
        elif deed == "die":
            self.release(number, place, 0, 0)
