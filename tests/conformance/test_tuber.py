"""The examples of Tuber's README (0.9.1), byte for byte: its clients work here.

Where a body of theirs has not the size that its line says, the size is put right.  Left out is
what differs on purpose (docs/extensions.md): a second put with a better priority changes nothing
here.  `stats-group` has keys here that Tuber's newer versions lack.
"""

from __future__ import annotations

import pytest

from beanstalk_twisted.testing.memory_server import MemoryServer

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "Unique Jobs (Idempotency)": [
        ("put 100 0 30 5 idp:my-key|hello", "INSERTED 1"),
        ("put 100 0 30 5 idp:my-key|hello", "INSERTED 1 READY"),
        ("put 200 0 30 5 idp:my-key|hello", "INSERTED 1 READY"),
        ("reserve", "RESERVED 1 5|hello"),
        ("put 100 0 30 5 idp:my-key|hello", "INSERTED 1 RESERVED"),
        ("release 1 100 9", "RELEASED"),
        ("put 100 0 30 5 idp:my-key|hello", "INSERTED 1 DELAYED"),
        ("kick-job 1", "KICKED"),
        ("reserve", "RESERVED 1 5|hello"),
        ("bury 1 100", "BURIED"),
        ("put 100 0 30 5 idp:my-key|hello", "INSERTED 1 BURIED"),
        ("delete 1", "DELETED"),
        ("put 100 0 30 5 idp:my-key|hello", "INSERTED 2"),
    ],
    "Cooldown TTL": [
        ("put 0 0 30 5 idp:report:300|hello", "INSERTED 1"),
        ("reserve", "RESERVED 1 5|hello"),
        ("delete 1", "DELETED"),
        ("put 0 0 30 5 idp:report:300|hello", "INSERTED 1 DELETED"),
    ],
    "Job Groups (Fan-out / Fan-in)": [
        ("put 0 0 30 12 grp:import|import-row-1", "INSERTED 1"),
        ("put 0 0 30 12 grp:import|import-row-2", "INSERTED 2"),
        ("put 0 0 60 12 aft:import|send-summary", "INSERTED 3"),
        ("reserve", "RESERVED 1 12|import-row-1"),
        ("bury 1 0", "BURIED"),
        ("stats-group import",
         'OK 104|---\nname: "import"\npending: 2\nready: 1\nreserved: 0\ndelayed: 0\nburied: 1\n'
         "complete: false\nwaiting-jobs: 1\n"),
        ("kick 1", "KICKED 1"),
        ("delete 1", "DELETED"),
        ("reserve", "RESERVED 2 12|import-row-2"),
        ("reserve-with-timeout 0", "TIMED_OUT"),
        ("delete 2", "DELETED"),
        ("reserve", "RESERVED 3 12|send-summary"),
    ],
    "stages together": [
        ("put 0 0 30 5 grp:extract|row-1", "INSERTED 1"),
        ("put 0 0 30 5 grp:extract|row-2", "INSERTED 2"),
        ("put 0 0 30 9 aft:extract grp:transform|transform", "INSERTED 3"),
        ("put 0 0 30 4 aft:transform|load", "INSERTED 4"),
        ("delete-batch 1 2", "DELETED_BATCH 2 0"),
        ("reserve", "RESERVED 3 9|transform"),
        ("reserve-with-timeout 0", "TIMED_OUT"),
        ("delete 3", "DELETED"),
        ("reserve", "RESERVED 4 4|load"),
    ],
    "Concurrency Keys": [
        ("put 0 0 30 8 con:user-42|payload1", "INSERTED 1"),
        ("put 0 0 30 8 con:user-42|payload2", "INSERTED 2"),
        ("reserve", "RESERVED 1 8|payload1"),
        ("reserve-with-timeout 0", "TIMED_OUT"),
        ("release 1 9 0", "RELEASED"),
        ("reserve", "RESERVED 2 8|payload2"),
        ("delete 2", "DELETED"),
        ("reserve", "RESERVED 1 8|payload1"),
    ],
    "a higher limit": [
        *[("put 0 0 30 8 con:api:3|payload1", f"INSERTED {job_id}") for job_id in range(1, 5)],
        *[("reserve", f"RESERVED {job_id} 8|payload1") for job_id in range(1, 4)],
        ("reserve-with-timeout 0", "TIMED_OUT"),
        ("bury 2 0", "BURIED"),
        ("reserve", "RESERVED 4 8|payload1"),
    ],
    "Batch Operations": [
        ("put 0 0 30 5|hello", "INSERTED 1"),
        ("put 0 0 30 5|world", "INSERTED 2"),
        ("put 0 0 30 7|goodbye", "INSERTED 3"),
        ("reserve-batch 5",
         "RESERVED_BATCH 3|RESERVED 1 5|hello|RESERVED 2 5|world|RESERVED 3 7|goodbye"),
        ("reserve-batch 5", "RESERVED_BATCH 0"),
        ("delete-batch 1 2 3 99", "DELETED_BATCH 3 1"),
    ],
    "Weighted reserves": [
        ("watch email", "WATCHING 2"),
        ("watch notifications 2", "WATCHING 3"),
        ("watch another-tube 6", "WATCHING 4"),
        ("reserve-mode weighted", "USING weighted"),
        ("use another-tube", "USING another-tube"),
        ("put 0 0 30 5|hello", "INSERTED 1"),
        ("reserve", "RESERVED 1 5|hello"),
        ("reserve-mode weighted-fair", "USING weighted-fair"),
    ],
    "peek-reserved": [
        ("peek-reserved", "NOT_FOUND"),
        ("put 0 0 30 5|hello", "INSERTED 1"),
        ("peek-reserved", "NOT_FOUND"),
        ("reserve", "RESERVED 1 5|hello"),
        ("peek-reserved", "FOUND 1 5|hello"),
        ("delete 1", "DELETED"),
        ("peek-reserved", "NOT_FOUND"),
    ],
    "flush-buried": [
        ("put 0 0 30 5|hello", "INSERTED 1"),
        ("put 0 0 30 5|world", "INSERTED 2"),
        ("reserve", "RESERVED 1 5|hello"),
        ("bury 1 0", "BURIED"),
        ("flush-buried default", "FLUSHED 1"),
        ("peek 2", "FOUND 2 5|world"),
        ("flush-buried default", "FLUSHED 0"),
        ("flush-buried nowhere", "FLUSHED 0"),
        ("flush-tube nowhere", "FLUSHED 0"),
    ],
    "flush-tube": [
        ("put 0 0 30 5|hello", "INSERTED 1"),
        ("put 0 9 30 5|hello", "INSERTED 2"),
        ("flush-tube default", "FLUSHED 2"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("title", EXAMPLES)
def test_what_tuber_documents_is_answered_the_same(title: str) -> None:
    client = MemoryServer().connect()
    for line, reply in EXAMPLES[title]:
        said = client.ask(line.replace("|", "\r\n").encode() + b"\r\n")
        assert said.decode() == reply.replace("|", "\r\n") + "\r\n", line
