"""The journal of jobs that are put into a server: what was sent, and what was answered."""

import fcntl
import json
import os
import stat
from contextlib import suppress
from hashlib import sha256
from typing import Any, BinaryIO, Final

from binlog_tools.console.streams import naming

VERSION: Final = 1


class Stopped(Exception):
    """It did not come to its end; run again, it goes on from there."""


class Journal:
    """Which jobs are about to be sent, and then what the server answered: only what was sent and
    not answered is uncertain after a crash.

    :ivar done: the new id of each job that is there.
    :ivar unburied: of those, buried ones that are not buried yet.
    :ivar held: of those, jobs that were buried because one of the group that they wait for was
        refused.
    :ivar uncertain: jobs that were sent, and for which no answer was written down; of those that
        went as a batch with a key, the whole batch, else an empty list.  ``repeated``: those of an
        earlier run that are to be sent again.
    :ivar run: a part of the keys of batches; another journal has another one.
    """

    def __init__(self, path: str, store_uuid: str, target: str) -> None:
        """:raise Stopped: it is the journal of another log or server, or of a run that goes on."""
        self.path = path
        self.done: dict[int, int] = {}
        self.unburied: dict[int, int] = {}
        self.held: set[int] = set()
        self.skipped: set[int] = set()
        self.uncertain: dict[int, list[int]] = {}
        self.repeated: dict[int, list[int]] = {}
        self.run = os.urandom(16).hex()
        self._head = {"v": VERSION, "kind": "journal", "store_uuid": store_uuid, "to": target}
        self._file: BinaryIO | None = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """Read what an earlier run has noted, and keep the file open, with its lock."""
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise Stopped(f"{self.path} is no file; name another journal with --journal")
            self._file = open(self.path, "r+b")  # noqa: SIM115
        except FileNotFoundError:
            return
        self._lock(self._file)
        try:
            size = self._read(self._file)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Stopped(
                f"{self.path} is not the journal of these jobs and this server; "
                f"name another one with --journal"
            ) from None
        self._file.truncate(size)
        self._file.seek(size)

    def _lock(self, file: BinaryIO) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None

    def _in_use(self) -> Stopped:
        return Stopped(f"{self.path} is in use by another run; run it again when that has ended")

    def _read(self, file: BinaryIO) -> int:
        """A last line without an end was being written when the process ended.

        :return: the bytes of whole lines.
        """
        size = 0
        for line in file:
            if not line.endswith(b"\n"):
                # It may be a part of our first line: nothing is sent before that is durable.
                head = json.dumps(self._head)[:-1].encode()
                if not size and not (head.startswith(line) or line.startswith(head)):
                    raise ValueError
                break
            document = json.loads(line)
            if size:
                self._take(document)
            else:
                # Journals of earlier versions have none.
                self.run = document.pop("run", None) or sha256(line).hexdigest()[:32]
                if document != self._head:
                    raise ValueError
            size += len(line)
        return size

    def _take(self, document: dict[str, Any]) -> None:
        if "sent" in document:
            jobs = document["sent"]
            self.uncertain.update(dict.fromkeys(jobs, jobs if document.get("key") else []))
        elif "put" in document:
            job_id, new_id = document["put"], document["as"]
            self.uncertain.pop(job_id, None)
            self.done[job_id] = new_id
            if document.get("to_bury", False):
                self.unburied[job_id] = new_id
            if document.get("held", False):
                self.held.add(job_id)
        elif "buried" in document:
            self.unburied.pop(document["buried"], None)
        elif "refused" in document:
            self.uncertain.pop(document["refused"], None)
        elif "skipped" in document:
            self.skipped.update(document["skipped"])
            for job_id in document["skipped"]:
                self.uncertain.pop(job_id, None)
        elif "again" in document:
            for job_id in document["again"]:
                batch = self.uncertain.pop(job_id, [])
                if document.get("may_be_there", False):
                    self.repeated[job_id] = batch
        else:
            raise ValueError

    @property
    def known(self) -> set[int]:
        """The jobs that are there, or are not to be put."""
        return self.done.keys() | self.skipped

    def settle(self, uncertain: str, what: str, *, knows_keys: bool) -> None:
        """Decide on what an earlier run has sent and has no answer to: batches with a key are sent
        again, if the server knows such keys and so puts them once.

        :param uncertain: what to do with others: `stop`, `again` or `skip`.
        :raise Stopped: there are such others, and the user must decide.
        """
        batches = {job: batch if knows_keys else [] for job, batch in self.uncertain.items()}
        others = sorted(job for job, batch in batches.items() if not batch)
        if others and uncertain == "stop":
            raise Stopped(
                f"an earlier run broke off while these {what} were on their way: "
                f"{', '.join(map(str, others))}. Look whether the server has them, then run it "
                "again with --uncertain again (put them once more) or --uncertain skip"
            )
        if others and uncertain == "skip":
            self.note({"skipped": others})
        for job, batch in batches.items():
            # Of a batch whose answer was written down in part, all goes again.
            self.repeated |= dict.fromkeys(batch or [job], batch)

    def note(self, *documents: dict[str, Any]) -> None:
        self.note_answers(*documents)
        self.sync()

    def note_answers(self, *documents: dict[str, Any]) -> None:
        """After a power loss before the next `note`, their jobs may be uncertain."""
        with naming(self.path):
            if self._file is None:
                # From the first note on: a run that has sent nothing leaves none.
                try:
                    self._file = open(self.path, "xb")  # noqa: SIM115
                except FileExistsError:
                    raise self._in_use() from None
                self._lock(self._file)
            lines = (
                documents if self._file.tell() else ({**self._head, "run": self.run}, *documents)
            )
            self._file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
            self._file.flush()
        for document in documents:
            self._take(document)

    def sync(self) -> None:
        if self._file is not None:
            with naming(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            # What could not be written has been told, and is tried once more here.
            with suppress(OSError):
                self._file.close()
