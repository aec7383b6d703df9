"""The commands that beanstalkd does not have, and their replies (docs/extensions.md)."""

import re
from functools import partial
from typing import Any, Final, cast

from beanstalk_twisted.wire import forms, grammar, rights
from beanstalk_twisted.wire.commands import (
    ACTS,
    CHANGES,
    COMMANDS,
    LOOKS,
    MAX_LINE_BYTES,
    RESERVES,
    SESSION,
    Command,
)
from beanstalk_twisted.wire.grammar import (
    MAX_BATCH_JOBS,
    Field,
    ParseError,
    Whole,
    number,
    one_of,
    optional,
    text_of,
)
from beanstalk_twisted.wire.replies import (
    BAD_FORMAT,
)
from beanstalk_twisted.wire.rights import OPEN, Needs
from beanstalk_twisted.wire.tags import (
    MAX_TAGGED_LINE_BYTES,
    OPTIONAL_BATCH_KEY,
    OPTIONAL_TAGS,
    TAG_WORDS,
    TAGS,
)

MAX_BATCH_LINE_BYTES: Final = 21_000
"""A `delete-batch` line with its CR LF: 1,000 ids of 19 digits take 20,014 bytes."""

MAX_POLICY_LINE_BYTES: Final = 1024
"""A `tube-policy` line with its CR LF: a long name and all keys take some 800 bytes."""

MAX_PAGE_JOBS: Final = 1000
"""Jobs of a page of `list-jobs`: some 5 ms, while others wait."""

MAX_WEIGHT: Final = 1000
"""Of a watched tube: with more, one of weight 1 would wait for tens of thousands of jobs.

Differs from Tuber: 9,999 there.
"""


def _seconds(text: bytes) -> int | None:
    """:return: nanoseconds; None if there is no such field on the line."""
    timeout_ns: int | None = grammar.TIMEOUT.convert(text) if text else None
    return timeout_ns


def _job_ids(text: bytes) -> tuple[int, ...]:
    ids = text.split()
    if len(ids) > MAX_BATCH_JOBS:
        raise ParseError(BAD_FORMAT)
    return tuple(map(_job_id, ids))


def _job_id(text: bytes) -> int:
    """Python refuses to convert numbers of thousands of digits, and zeros count as digits."""
    job_id: int = grammar.JOB_ID.convert(text.lstrip(b"0")[:MAX_LINE_BYTES] or b"0")
    return job_id


def _pairs(text: bytes) -> tuple[tuple[str, str], ...]:
    pairs = []
    for pair in text.decode("ascii").split():
        key, _, value = pair.partition("=")
        pairs.append((key, value))
    return tuple(pairs)


def _write_job_ids(what: str, value: object) -> bytes:
    if not isinstance(value, tuple):
        raise TypeError(f"{what} are a tuple, not {value!r}")
    if not 1 <= len(value) <= MAX_BATCH_JOBS:
        raise ValueError(f"{what} are 1 to {MAX_BATCH_JOBS} jobs, not {len(value)}")
    return b" ".join([grammar.U64(what, job_id) for job_id in value])


def _write_pairs(what: str, value: object) -> bytes:
    if not isinstance(value, tuple) or not all([_is_pair(each) for each in value]):
        raise TypeError(f"{what} is keys and values, not {value!r}")
    words = ["=".join(pair) for pair in value]
    for word in words:
        if not re.fullmatch(r"[a-z-]+=[!-~]+", word):
            raise ValueError(f"{what}: there can be no {word!r}")
    return " ".join(words).encode()


def _is_pair(value: object) -> bool:
    is_pair = isinstance(value, tuple) and len(value) == 2
    return is_pair and all([isinstance(each, str) for each in cast(Any, value)])


def _write_token(what: str, value: object) -> bytes:
    """A wrong one is not shown: it may be a secret with a typing error."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]{1,200}", value):
        raise ValueError(f"{what} is 1 to 200 characters of ASCII without spaces")
    return value.encode()


OPTIONAL_SECONDS: Final = Field(
    "seconds", rb"((?: ++[0-9]++)?+)", _seconds, optional(grammar.WAIT_S), is_optional=True
)
OPTIONAL_DELAY: Final = Field(
    "delay", rb"((?: ++[0-9]++)?+)", lambda text: grammar.DELAY.convert(text) if text else 0,
    grammar.U32, is_optional=True,
)  # fmt: skip
JOB_IDS: Final = Field("ids", rb" *+([0-9]++(?: ++[0-9]++)*+)", _job_ids, _write_job_ids)
WEIGHT: Final = Field(
    "weight", rb" ([0-9]++)", lambda text: number(text, MAX_WEIGHT, 1), Whole(1, MAX_WEIGHT)
)
MODE: Final = Field(
    "mode", rb"(fifo|weighted-fair|weighted)", bytes, one_of("fifo", "weighted", "weighted-fair")
)
WATCHED: Final = Field("tube", rb"([^ ]*+)", grammar.TUBE.convert, grammar.write_tube)
FLUSHED_STATE: Final = Field(
    "state", rb"(?: (ready|delayed|buried|all))?+", lambda text: text or b"all",
    one_of("ready", "delayed", "buried", "all"), is_optional=True,
)  # fmt: skip
LISTED_STATE: Final = Field(
    "state", rb" (ready|reserved|delayed|buried|all)", bytes,
    one_of("ready", "reserved", "delayed", "buried", "all"),
)  # fmt: skip
LIMIT: Final = Field(
    "limit", rb" ([0-9]++)", lambda text: number(text, MAX_PAGE_JOBS, 1), Whole(1, MAX_PAGE_JOBS)
)
CURSOR: Final = Field(
    "cursor", rb"(?: ([a-z0-9-]++))?+", lambda text: text or b"",
    optional(text_of("[a-z0-9-]+", "what list-jobs has given")), is_optional=True,
)  # fmt: skip
GROUP: Final = grammar.TUBE_WORD._replace(name="group", write=grammar.write_name)
POLICY_PAIRS: Final = Field(
    "policy", rb"((?: ++[a-z-]++=[\x21-\x7e]++)*+)", _pairs, _write_pairs, is_optional=True
)
TARGET: Final = Field(
    "tube", rb" ([A-Za-z0-9\-+/;.$_()]++)", grammar.TUBE.convert, grammar.write_tube
)
UNIQUE_KEY: Final = TARGET._replace(name="key", write=grammar.write_name)
SUCCESSOR: Final = Field(
    "standby", rb"([\x21-\x7e]++|(?<! ))", lambda text: text or b"",
    optional(text_of(r"[\x21-\x7e]+", "a name such as host:11300")), is_optional=True,
)  # fmt: skip
"""After a blank there is a name: an empty one is a mistake, and not whichever has the most."""

DEAD_BOUND: Final = Field("bound", rb" ([0-9]++)", grammar.COUNT.convert, grammar.U32)
TOKEN: Final = Field("token", rb"([\x21-\x7e]++)", bytes, _write_token)

FLUSH_S: Final = 600.0
"""What a flush or a `kick-dead` may take, seconds: a million jobs take 30 s on a busy one."""

_row: Final = partial(Command, is_whole_word=True, is_counted=False, is_extension=True)
_PUT: Final = Needs(rights.PUT, rights.USED)
_LOOK_AT_EVERY: Final = Needs(rights.LOOK, rights.EVERY)
_MANAGE_TUBE: Final = Needs(rights.MANAGE, rights.NAMED)
_MANAGE_EVERY: Final = Needs(rights.MANAGE, rights.EVERY)

TAGGED_PUT: Final = Command(
    b"put ", (grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.BYTES, TAGS),
    (forms.INSERTED_OR_THERE, *forms.PUT_FAILS), effect=CHANGES, operation="put-tagged",
    method="put_batches.put_tagged", has_jobs=True, max_line_bytes=MAX_TAGGED_LINE_BYTES,
    needs=_PUT, is_extension=True, text="As `put`, with [tags](#tags).",
)  # fmt: skip
"""A `put` whose size is followed by tags."""

# They have no counters, since `stats` has no new keys.  A line is one of them if its first word is:
# ``reserve-batch 5`` is no `reserve`, so these rows stand before beanstalkd's.  A `watch` with a
# weight and a `put` with tags are other forms: a `watch` is looked at again if it is BAD_FORMAT to
# beanstalkd, and the row of a `put` with tags is used where `put` finds tags after the size.
EXTENSIONS: Final = (
    _row(
        b"capabilities", (), (forms.DOCUMENT, *forms.ANNOUNCES_NOTHING), effect=LOOKS, is_own=True,
        method="looks.capabilities", needs=OPEN,
        text="Lists the commands and tags of this page that the server knows, as `list-tubes` "
        'lists tubes; tags as `"put idp:"` and `"put-batch idp:"`.',
    ),
    _row(
        b"put-at ",
        (grammar.PRIORITY, grammar.UNIX_SECONDS, grammar.TTR, grammar.BYTES, OPTIONAL_TAGS),
        (forms.INSERTED_OR_THERE, *forms.PUT_FAILS), effect=CHANGES, method="put_batches.put_at",
        has_jobs=True, max_line_bytes=MAX_TAGGED_LINE_BYTES, needs=_PUT,
        text="As `put`, but delayed until that moment of the wall clock; ready immediately if it "
        "is past. A [`max-age`](#tube-policies) may end it before.",
    ),
    _row(
        b"put-batch ", (grammar.BATCH_COUNT, OPTIONAL_BATCH_KEY),
        (forms.INSERTED_BATCH, *forms.PUT_FAILS), effect=CHANGES, method="put_batches.put_batch",
        has_jobs=True, needs=_PUT,
        text="Puts all [jobs that follow](#putting-a-batch) or none; with a "
        "[key](#the-key-of-a-batch) only once.",
    ),
    _row(
        b"reserve-batch ", (grammar.BATCH_COUNT, OPTIONAL_SECONDS),
        (forms.RESERVED_BATCH, forms.DEADLINE_SOON), effect=RESERVES,
        method="batches.reserve", needs=Needs(rights.RESERVE, rights.WATCHED),
        text="Reserves up to `count` ready jobs.",
    ),
    _row(
        b"delete-batch ", (JOB_IDS,), (forms.DELETED_BATCH,), effect=CHANGES,
        method="batches.delete", max_line_bytes=MAX_BATCH_LINE_BYTES,
        needs=Needs(rights.RESERVE, rights.HELD_JOBS),
        text="Deletes each of these jobs that `delete` would delete.",
    ),
    _row(
        b"peek-reserved", (), forms.JOB_REPLIES, effect=LOOKS, method="looks.peek_reserved",
        needs=Needs(rights.LOOK, rights.USED),
        text="As `peek-ready`, but the reserved job with the smallest id, of any connection.",
    ),
    _row(
        b"list-jobs ", (grammar.TUBE_WORD, LISTED_STATE, LIMIT, CURSOR), forms.DOCUMENT_REPLIES,
        effect=LOOKS, method="listing.list_jobs", needs=Needs(rights.LOOK, rights.NAMED),
        text="Describes some of the tube's jobs in this state.",
    ),
    _row(
        b"flush-tube ", (grammar.TUBE_WORD, FLUSHED_STATE),
        (forms.FLUSHED,), effect=CHANGES, method="flushes.flush", takes_s=FLUSH_S,
        needs=_MANAGE_TUBE, text="Deletes the tube's jobs in this state.",
    ),
    _row(
        b"flush-buried ", (grammar.TUBE_WORD,), (forms.FLUSHED,), effect=CHANGES,
        method="flushes.flush_buried", takes_s=FLUSH_S, needs=_MANAGE_TUBE,
        text="As `flush-tube <tube> buried`.",
    ),
    _row(
        b"cancel-job ", (grammar.JOB_ID,), (forms.ReplyForm(b"CANCELLED"), forms.NOT_FOUND),
        effect=CHANGES, method="cancel_job", needs=Needs(rights.MANAGE, rights.JOB),
        text="Deletes a job, [even a reserved one](#cancelling-and-returning).",
    ),
    _row(
        b"return-job ", (grammar.JOB_ID, OPTIONAL_DELAY),
        (forms.ReplyForm(b"RETURNED"), forms.NOT_FOUND), effect=CHANGES, method="return_job",
        needs=Needs(rights.RESERVE, rights.JOB),
        text="Gives back a job [as if this connection had not reserved "
        "it](#cancelling-and-returning), perhaps with a delay.",
    ),
    _row(
        b"forget-key ", (grammar.TUBE_WORD, UNIQUE_KEY),
        (forms.ReplyForm(b"FORGOTTEN"), forms.NOT_FOUND), effect=CHANGES,
        method="flushes.forget_key", needs=_MANAGE_TUBE,
        text="Forgets the [unique key](#tags) of a deleted job, or the [key of a "
        "batch](#the-key-of-a-batch); jobs stay.",
    ),
    _row(
        b"move-job ", (grammar.JOB_ID, TARGET),
        (forms.ReplyForm(b"MOVED"), forms.DUPLICATE, forms.NOT_FOUND), effect=CHANGES,
        method="edits.move", needs=Needs(rights.MANAGE, rights.MOVED),
        text="Puts a job into [another tube](#moving-and-updating-a-job).",
    ),
    _row(
        b"update-job ",
        (grammar.JOB_ID, grammar.PRIORITY, grammar.DELAY, grammar.TTR, grammar.OPTIONAL_BYTES),
        (forms.ReplyForm(b"UPDATED"), forms.NOT_FOUND, forms.EXPECTED_CRLF, forms.JOB_TOO_BIG),
        effect=CHANGES, method="edits.update", has_jobs=True,
        needs=Needs(rights.MANAGE, rights.JOB),
        text="Gives a job another priority, delay and TTR, and with `bytes` another "
        "[body](#moving-and-updating-a-job); otherwise none follows.",
    ),
    _row(
        b"wait-job ", (grammar.JOB_ID, grammar.SECONDS),
        (forms.WAS_DELETED, forms.WAS_BURIED, forms.TIMED_OUT, forms.NOT_FOUND), effect=SESSION,
        method="job_waits.wait", needs=Needs(rights.LOOK, rights.JOB),
        text="Waits until the job is gone or buried.",
    ),
    _row(
        b"cancel-reserve", (), (forms.ReplyForm(b"CANCELLED"),), effect=SESSION,
        method="cancel_reserve", ends_wait=True, needs=OPEN,
        text="Ends the waiting `reserve`, `reserve-with-timeout`, `reserve-batch` or `wait-job`, "
        "which is answered first: `TIMED_OUT`, or `RESERVED_BATCH 0`.",
    ),
    _row(
        b"stats-group ", (GROUP,), forms.DOCUMENT_REPLIES, effect=LOOKS, method="looks.stats_group",
        needs=_LOOK_AT_EVERY,
        text="Counts the jobs of a [group](#groups) and those that wait for it.",
    ),
    _row(
        b"watch ", (WATCHED, WEIGHT), (forms.WATCHING,), effect=SESSION, operation="watch-weighted",
        form="watch <weight>", method="watching.watch_weighted",
        needs=Needs(rights.RESERVE, rights.NAMED),
        text="As `watch`, with a [weight](#choosing-by-weight).",
    ),
    _row(
        b"reserve-mode ", (MODE,), (forms.USING,), effect=SESSION, is_own=True,
        method="watching.reserve_mode", needs=OPEN,
        text="Sets how reserves of this connection [choose a tube](#choosing-by-weight).",
    ),
    _row(
        b"tube-policy ", (grammar.TUBE_WORD, POLICY_PAIRS),
        (forms.DOCUMENT, forms.ReplyForm(b"POLICY"), forms.OUT_OF_MEMORY), effect=CHANGES,
        method="policies.tube_policy", max_line_bytes=MAX_POLICY_LINE_BYTES,
        needs=Needs(rights.MANAGE, rights.POLICY),
        text="Shows or changes the tube's [policy](#tube-policies).",
    ),
    _row(
        b"kick-dead ", (grammar.TUBE_WORD, DEAD_BOUND), (forms.KICKED,), effect=CHANGES,
        method="dead_kicks.kick", takes_s=FLUSH_S, needs=_MANAGE_TUBE,
        text="Returns up to `bound` [dead letters](#dead-letters) of the tube to it.",
    ),
    _row(
        b"list-connections", (), (forms.DOCUMENT,), effect=LOOKS, method="connections.list_all",
        needs=_LOOK_AT_EVERY, text="Describes all connections.",
    ),
    _row(
        b"drain", (), (forms.ReplyForm(b"DRAINING"),), effect=ACTS, method="puts.drain",
        needs=_MANAGE_EVERY, text="Refuses new jobs from now on, as SIGUSR1 does.",
    ),
    _row(
        b"undrain", (), (forms.ReplyForm(b"NOT_DRAINING"),), effect=ACTS, method="puts.undrain",
        needs=_MANAGE_EVERY, text="Takes new jobs again.",
    ),
    _row(
        b"promote ", (SUCCESSOR,),
        (forms.ReplyForm(b"HANDING_OVER", forms.words), forms.CANNOT_HAND_OVER), effect=ACTS,
        method="promote", needs=_MANAGE_EVERY,
        text="Has the active server of a [replicated](replication.md) queue hand over to this "
        "standby, or to the most advanced one, and disconnect its clients.",
    ),
    _row(
        b"stats-replication", (), (forms.DOCUMENT,), effect=LOOKS, is_own=True,
        method="stats_replication", needs=Needs(rights.LOOK, rights.SOME),
        text="Shows the [state of replication](#replication).",
    ),
)  # fmt: skip

AUTH: Final = _row(
    b"auth ", (TOKEN,), (forms.ReplyForm(b"AUTHORIZED"), forms.UNAUTHORIZED, forms.NOT_ASKED),
    effect=SESSION, is_own=True, needs=OPEN,
    text="Gives the connection the rights of [the token's owner](access.md#auth); only with "
    "`--access`.",
)  # fmt: skip
"""Known only to a server that has an access file: to all others it is an unknown command."""

BY_OPERATION: Final = {row.operation: row for row in (*COMMANDS, TAGGED_PUT, *EXTENSIONS, AUTH)}
"""All commands."""

HIDDEN: Final = b"auth (hidden)"


def without_secret(line: bytes) -> bytes:
    """:return: the same; `HIDDEN` if it may have a token in it."""
    return HIDDEN if line[:16].lstrip()[:4].lower() == AUTH.name.encode() else line


CAPABILITIES: Final = (
    *[(row.form or row.name).encode() for row in EXTENSIONS],
    *[TAGGED_PUT.prefix + word for word in TAG_WORDS],
    b"put-batch idp:",
)
"""What `capabilities` lists."""
