"""What is said to the servers, and what they must answer.

Most of these are upstream's own server tests, by their names there.  Left out are those of the C
server's own files (binlog_size_limit, binlog_disk_full, binlog_disk_full_delete, binlog_v5),
job_size_max_plus_1, which sends a gigabyte, and the two of UNIX sockets, which are in
test_conformance.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

CLOSED = ""
"""What is heard when the server has parted."""


class Say(NamedTuple):
    """Send something, then hear these replies.

    :ivar heard: of each reply the beginning of its first line, up to a blank or its end; behind
        each further " ... " a line of its document.
    """

    who: str
    sent: bytes
    heard: tuple[str, ...]


class Block(NamedTuple):
    """Send something that is not answered yet, and see that it has arrived."""

    who: str
    sent: bytes


class End(NamedTuple):
    """Part; or only say that nothing more will be sent."""

    who: str
    is_half: bool


class Restart(NamedTuple):
    """Kill the server and start another one on its directory."""


class Drain(NamedTuple):
    """Send SIGUSR1."""


Step = Say | Block | End | Restart | Drain


class Conversation(NamedTuple):
    """What is said to a new server.

    :ivar is_logged: it keeps a log.
    :ivar is_timed: it takes a second or two; all of these are held at the same time.
    """

    title: str
    steps: tuple[Step, ...]
    max_job_bytes: int = 65_535
    is_logged: bool = False
    is_timed: bool = False


CONVERSATIONS: list[Conversation] = []


def conversation(
    title: str, *steps: Step, max_job_bytes: int = 65_535, is_logged: bool = False,
    is_timed: bool = False,
) -> None:  # fmt: skip
    """Add one to the list."""
    CONVERSATIONS.append(Conversation(title, steps, max_job_bytes, is_logged, is_timed))


def say(who: str, sent: str | bytes, *heard: str) -> Say:
    """Send a command, or with bytes exactly these."""
    return Say(who, sent if isinstance(sent, bytes) else sent.encode() + b"\r\n", heard)


def hear(who: str, *heard: str) -> Say:
    """Hear replies to what was sent before."""
    return Say(who, b"", heard)


def put(
    who: str, heard: str, *, pri: int = 0, delay: int = 0, ttr: int = 60, body: str = "x"
) -> Say:
    return say(who, f"put {pri} {delay} {ttr} {len(body)}\r\n{body}", heard)


def each(who: str, heard: str, *commands: str) -> Iterator[Say]:
    """Say one command after the other; all are answered in the same way."""
    return (say(who, command, heard) for command in commands)


def wait(seconds: int) -> tuple[Say, ...]:
    """Let at least so much time pass on the server's own clock."""
    return (
        say("timer", "watch nothing", "WATCHING 2"),
        say("timer", "ignore default", "WATCHING 1"),
        say("timer", f"reserve-with-timeout {seconds}", "TIMED_OUT"),
        say("timer", "watch default", "WATCHING 2"),
        say("timer", "ignore nothing", "WATCHING 1"),
    )


BAD = "BAD_FORMAT"
UNKNOWN = "UNKNOWN_COMMAND"
MISSING = "NOT_FOUND"
LONG = "n" * 200
MARKS = "!@#$%^&*()"
HUGE = "9" * 48

# The protocol's ground.

conversation("unknown_command", say("a", "nont10knowncommand", UNKNOWN))
conversation(
    "too_long_commandline",
    say("a", "a" * 500, BAD),
    put("a", "INSERTED 1"),
)
conversation(
    "put_in_drain",
    put("a", "INSERTED 1"),
    Drain(),
    put("a", "DRAINING"),
    say("a", b"put 0 0 1 3\r\nabcde", "EXPECTED_CRLF"),
    put("b", "DRAINING"),
    say("b", "reserve", "RESERVED 1 1"),
    *each("b", MISSING, "peek 2", "peek 3", "peek 4"),
)
conversation("2cmdpacket", say("a", b"use a\r\nuse b\r\n", "USING a", "USING b"))
conversation("underscore", say("a", "use x_y", "USING x_y"))
conversation(
    "use_tube_long",
    say("a", f"use {LONG}", f"USING {LONG}"),
    say("a", f"use {LONG}n", BAD),
    say("a", f"watch {LONG}n", BAD),
)
conversation(
    "longest_command",
    say("a", f"use {LONG}", f"USING {LONG}"),
    say("a", f"pause-tube {LONG} 4294967295", "PAUSED"),
)
conversation(
    "list_tube",
    say("a", "watch w", "WATCHING 2"),
    say("a", "use u", "USING u"),
    say("a", "list-tubes", "OK ... - default ... - w ... - u"),
    say("a", "list-tube-used", "USING u"),
    say("a", "list-tubes-watched", "OK ... - default ... - w"),
    say("a", "ignore default", "WATCHING 1"),
    say("a", "list-tubes-watched", "OK ... - w"),
    say("a", "ignore w", "NOT_IGNORED"),
    say("a", "ignore never-seen", "WATCHING 1"),
    say("a", "list-tubes", "OK"),
)

# Putting.

conversation(
    "too_big",
    say("a", "put 0 0 0 11\r\ndelete 9999", "JOB_TOO_BIG"),
    say("a", "put 0 0 0 12 junk\r\ndelete 99999", "JOB_TOO_BIG"),
    put("a", "INSERTED 1", body="0123456789"),
    say("a", "stats", "OK ... cmd-put: 3 ... total-jobs: 1 ... current-producers: 1"),
    max_job_bytes=10,
)
conversation("empty_bodies_only", put("a", "INSERTED 1", body=""), put("a", "JOB_TOO_BIG"),
             max_job_bytes=0)  # fmt: skip
conversation(
    "job_size_invalid",
    *each("a", BAD, "put 0 0 0 4294967296", "put 0 0 0 10b", f"put 0 0 0 {MARKS}", "put 0 0 0 "),
    put("a", "INSERTED 1"),
)
conversation(
    "odd_numbers_of_put",
    *each("a", BAD, "put 512 -1 100 0", "put -1kkdj9djjkd9 0 100 1", "put -1 0 100 1",
          "put 4294967296 0 100 1", "put 0 4294967296 1 1", "put 0 0 4294967296 1", "put +1 0 1 1",
          "put 0 0 1", "put 0 0 1 0x1", "put 0 0 1 1.0", "put 0\t0 1 1", "put 0 0 1 1 "),
    put("a", "INSERTED 1", pri=2**32 - 1),
    put("a", "INSERTED 2", delay=2**32 - 1, ttr=2**32 - 1),
    say("a", "put   007   0   0012 1\r\nx", "INSERTED 3"),
    *each("a", "OK", "stats-job 1", "stats-job 2", "stats-job 3"),
)  # fmt: skip
conversation(
    "small_delay, zero_delay",
    put("a", "INSERTED 1", delay=100, body=""),
    put("a", "INSERTED 2", body=""),
    say("a", "stats-job 1", "OK ... state: delayed ... delay: 100"),
    say("a", "stats-job 2", "OK ... state: ready ... delay: 0"),
)
conversation(
    "ttr_small, ttrlarge, omit_time_left",
    put("a", "INSERTED 1", ttr=0),
    say("a", "stats-job 1", "OK ... ttr: 1 ... time-left: 0"),
    *(
        step
        for job, ttr in enumerate((120, 4294, 4295, 4296, 4297, 5000, 21600), start=2)
        for step in (
            put("a", f"INSERTED {job}", ttr=ttr),
            say("a", f"stats-job {job}", f"OK ... ttr: {ttr} ... time-left: 0"),
        )
    ),
)
conversation(
    "a_body_that_is_not_followed_by_cr_lf",
    say("a", b"put 0 0 1 3\r\nabcdef\r\n", "EXPECTED_CRLF", UNKNOWN),
    say("a", b"put 0 0 1 3\r\nabcd\r\nstats-job 1\r\n", "EXPECTED_CRLF", UNKNOWN),
    say("a", b"put 0 0 1 5 junk\r\nabcde\r\n", BAD, UNKNOWN),
    put("a", "INSERTED 3"),
    say("a", "stats", "OK ... cmd-put: 4 ... total-jobs: 1"),
)
conversation(
    "bodies_are_opaque",
    say("a", b"put 0 0 1 9\r\n\r\n\0\r\xff\r\n\n\r\r\n", "INSERTED 1"),
    say("a", "peek 1", "FOUND 1 9"),
    say("b", "reserve", "RESERVED 1 9"),
)
conversation(
    "a_put_that_is_broken_off",
    say("a", b"use t\r\nput 0 0 1 10\r\nhalf", "USING t"),
    End("a", is_half=True),
    hear("a", CLOSED),
    say("b", "peek 1", MISSING),
    put("b", "INSERTED 2"),
    say("b", "stats", "OK ... cmd-put: 2 ... total-jobs: 1 ... current-connections: 1"),
    say("b", "list-tubes", "OK ... - default"),
)

# Peeking.

conversation(
    "peek_ok, peek_not_found, peek_bad_format",
    put("a", "INSERTED 1", body="abcde"),
    say("a", "peek 1", "FOUND 1 5"),
    *each("a", MISSING, "peek 2", "peek 0", "peek 18446744073709551615"),
    *each("a", BAD, "peek 18446744073709551616", f"peek {HUGE}", "peek foo111", "peek 111foo"),
    say("b", "reserve-job 1", "RESERVED 1 5"),
    say("a", "peek 1", "FOUND 1 5"),
)
conversation(
    "peek_delayed",
    say("a", "peek-delayed", MISSING),
    put("a", "INSERTED 1", body="A"),
    put("a", "INSERTED 2", delay=99, body="B"),
    put("a", "INSERTED 3", delay=88, body="C"),
    say("a", "peek-delayed", "FOUND 3 1"),
    say("a", "delete 3", "DELETED"),
    say("a", "peek-delayed", "FOUND 2 1"),
    say("a", "delete 2", "DELETED"),
    say("a", "peek-delayed", MISSING),
)
conversation(
    "peek_buried_kick",
    put("a", "INSERTED 1"),
    say("a", "bury 1 0", MISSING),
    say("a", "peek-buried", MISSING),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "bury 1 7", "BURIED"),
    say("a", "stats-job 1", "OK ... state: buried ... pri: 7 ... buries: 1"),
    say("a", "peek-buried", "FOUND 1 1"),
    say("a", "kick 1", "KICKED 1"),
    say("a", "peek-buried", MISSING),
    say("a", "peek-ready", "FOUND 1 1"),
    say("a", "kick 1", "KICKED 0"),
    say("a", "stats-job 1", "OK ... state: ready ... kicks: 1"),
)

# Touching, burying, kicking, deleting, releasing.

conversation(
    "malformed_ids",
    *(
        step
        for verb in ("touch", "kick-job", "delete", "peek", "stats-job", "reserve-job")
        for step in each("a", BAD, f"{verb} a111", f"{verb} 111a", f"{verb} {MARKS}", f"{verb} ",
                         f"{verb} 18446744073709551616", f"{verb} {HUGE}", f"{verb} 1 ",
                         f"{verb} -1", f"{verb} +1", f"{verb} \t1", f"{verb} 1 1")
    ),
    *(
        step
        for verb in ("touch", "kick-job", "delete", "peek", "stats-job", "reserve-job")
        for step in each("a", MISSING, f"{verb} 1", f"{verb} 100000000000000", f"{verb} 0",
                         f"{verb}    7")
    ),
    say("a", "stats", "OK ... cmd-touch: 4 ... cmd-delete: 4 ... cmd-peek: 4"),
)  # fmt: skip
conversation(
    "bury_bad_format",
    *each("a", BAD, "bury 111abc 2", "bury 111", "bury 111 222abc", "bury 1 2 3", "bury 1 ",
          "bury 1 4294967296"),
    say("a", "bury 1 2", MISSING),
)  # fmt: skip
conversation(
    "release_bad_format, release_not_found",
    *each("a", BAD, "release 18446744073709551616 1 1", f"release {HUGE} 1 1", "release foo111 1 1",
          "release 111foo 1 1", "release 1 abc 1", "release 1 1 abc", "release 1 1", "release 1",
          "release 1 4294967296 1", "release 1 1 4294967296", "release 1 1 1 1", "release 1 1 1 "),
    *each("a", MISSING, "release 1 1 1", "release  99  1  1"),
    say("a", "stats", "OK ... cmd-release: 2"),
)  # fmt: skip
conversation(
    "kickjob_buried",
    put("a", "INSERTED 1"),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "kick-job 1", MISSING),
    say("a", "bury 1 0", "BURIED"),
    say("a", "kick-job 100", MISSING),
    say("b", "kick-job 1", "KICKED"),
    say("b", "kick-job 1", MISSING),
)
conversation(
    "kickjob_delayed",
    put("a", "INSERTED 1"),
    put("a", "INSERTED 2", delay=100),
    say("a", "kick-job 1", MISSING),
    say("a", "kick-job 2", "KICKED"),
    say("a", "kick-job 2", MISSING),
    say("a", "stats-job 2", "OK ... state: ready ... delay: 100 ... kicks: 1"),
)
conversation(
    "kick_takes_buried_jobs_or_delayed_ones",
    *(put("a", f"INSERTED {job}", ttr=600) for job in (1, 2, 3)),
    *(say("a", "reserve", f"RESERVED {job} 1") for job in (1, 2, 3)),
    *(say("a", f"bury {job} 5", "BURIED") for job in (2, 3, 1)),
    put("a", "INSERTED 4", delay=900),
    put("a", "INSERTED 5", delay=800),
    say("a", "peek-buried", "FOUND 2 1"),
    say("a", "kick 1", "KICKED 1"),
    say("a", "peek-buried", "FOUND 3 1"),
    say("a", "kick 10", "KICKED 2"),
    say("a", "kick 1", "KICKED 1"),
    say("a", "peek-delayed", "FOUND 4 1"),
    say("a", "kick 10", "KICKED 1"),
    say("a", "kick 10", "KICKED 0"),
    *(say("b", "reserve", f"RESERVED {job} 1") for job in (4, 5, 1, 2, 3)),
)
conversation(
    "the_loose_number_of_kick",
    *(put("a", f"INSERTED {job}", delay=100) for job in range(1, 8)),
    *each("a", "KICKED 1", "kick 1x", "kick 1 2", "kick +1", "kick \t1", "kick 1 ", "kick 01"),
    *each("a", "KICKED 0", "kick 0x10", "kick 4294967296", "kick 18446744069414584320", "kick 0"),
    *each("a", BAD, "kick x", "kick ", "kick -", "kick 18446744073709551616", f"kick {HUGE}"),
    say("a", "kick -1", "KICKED 1"),
)
conversation(
    "delete_ready, delete_reserved_by_other",
    *(put("a", f"INSERTED {job}", delay=delay) for job, delay in ((1, 0), (2, 0), (3, 9), (4, 0))),
    say("a", "delete 0000001", "DELETED"),
    say("b", "reserve", "RESERVED 2 1"),
    say("a", "delete 2", MISSING),
    say("a", "delete 3", "DELETED"),
    say("b", "delete 2", "DELETED"),
    say("b", "reserve-job 4", "RESERVED 4 1"),
    say("b", "bury 4 0", "BURIED"),
    say("a", "delete 4", "DELETED"),
    say("a", "stats-tube default", "OK ... cmd-delete: 4 ... total-jobs: 4"),
    say("a", "stats", "OK ... cmd-delete: 5"),
)
conversation(
    "touch_only_what_is_ones_own",
    put("a", "INSERTED 1"),
    say("a", "touch 1", MISSING),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "touch 1", "TOUCHED"),
    *each("b", MISSING, "touch 1", "bury 1 1", "release 1 1 1", "delete 1", "reserve-job 1"),
    say("a", "stats-job 1", "OK ... state: reserved ... reserves: 1"),
)

# Statistics.

conversation(
    "statsjob_ck_format",
    *each("a", BAD, "stats-job 111ABC", "stats-job 111 222"),
    say("a", "stats-job 111", MISSING),
)
conversation(
    "stats_tube",
    say("a", "use tubea", "USING tubea"),
    put("a", "INSERTED 1"),
    say("a", "delete 1", "DELETED"),
    say("a", "stats-tube tubea", "OK ... total-jobs: 1 ... current-using: 1 ... cmd-delete: 1"),
    say("a", "stats-tube default", "OK ... current-watching: 1 ... current-using: 0"),
    say("a", "stats-tube nonesuch", MISSING),
)
conversation("stats_of_a_fresh_server", say("a", "stats", "OK ... cmd-stats: 1"))
conversation(
    "statistics_of_all_states",
    put("a", "INSERTED 1", pri=1023),
    put("a", "INSERTED 2", pri=1024, delay=100),
    put("a", "INSERTED 3", pri=0, ttr=100),
    put("a", "INSERTED 4", pri=7),
    say("b", "reserve", "RESERVED 3 1"),
    say("b", "reserve-job 4", "RESERVED 4 1"),
    say("b", "bury 4 1024", "BURIED"),
    *each("a", "OK", "stats-job 1", "stats-job 2", "stats-job 3", "stats-job 4"),
    say("a", "pause-tube default 1000", "PAUSED"),
    say("a", "stats-tube default", "OK ... pause: 1000 ... current-jobs-urgent: 1"),
    say("a", "stats", "OK ... current-workers: 1 ... current-jobs-reserved: 1"),
    End("b", is_half=True),
    hear("b", CLOSED),
    say("a", "stats-job 3", "OK ... state: ready ... reserves: 1 ... releases: 0"),
    say("a", "stats", "OK ... current-workers: 0 ... current-connections: 1"),
)
conversation(
    "tubes_come_and_go",
    *(say("a", f"watch w{n}", f"WATCHING {n + 1}") for n in (1, 2, 3)),
    say("a", "watch w2", "WATCHING 4"),
    say("a", "use u1", "USING u1"),
    say("a", "list-tubes", "OK ... - u1"),
    say("a", "ignore w1", "WATCHING 3"),
    *each("a", "OK", "list-tubes", "list-tubes-watched"),
    say("a", "ignore default", "WATCHING 2"),
    *each("a", "OK", "list-tubes", "list-tubes-watched"),
    put("a", "INSERTED 1"),
    say("a", "use u2", "USING u2"),
    say("a", "stats-tube u1", "OK ... current-using: 0"),
    say("a", "reserve-job 1", "RESERVED 1 1"),
    say("a", "stats-tube u1", "OK ... current-jobs-reserved: 1"),
    say("a", "delete 1", "DELETED"),
    say("a", "stats-tube u1", MISSING),
    say("a", "list-tubes", "OK"),
    *each("a", MISSING, "pause-tube nonesuch 1", "stats-tube nonesuch"),
)

# Reserving.

conversation(
    "multi_tube",
    say("a", "use abc", "USING abc"),
    put("a", "INSERTED 1", pri=999999),
    say("a", "use def", "USING def"),
    put("a", "INSERTED 2", pri=99),
    say("a", "watch abc", "WATCHING 2"),
    say("a", "watch def", "WATCHING 3"),
    say("a", "reserve", "RESERVED 2 1"),
    say("a", "reserve", "RESERVED 1 1"),
)
conversation(
    "the_best_job_of_all_watched_tubes_comes_first",
    *(
        step
        for job, (tube, pri) in enumerate((("ta", 5), ("tb", 5), ("tb", 4), ("ta", 5)), start=1)
        for step in (say("a", f"use {tube}", f"USING {tube}"), put("a", f"INSERTED {job}", pri=pri))
    ),
    say("b", "watch tb", "WATCHING 2"),
    say("b", "watch ta", "WATCHING 3"),
    *(say("b", "reserve", f"RESERVED {job} 1") for job in (3, 1, 2, 4)),
)
conversation(
    "a_released_job_has_its_old_place",
    *(put("a", f"INSERTED {job}", pri=5, ttr=600) for job in range(1, 6)),
    *(say("a", "reserve", f"RESERVED {job} 1") for job in range(1, 6)),
    *(say("a", f"release {job} 5 0", "RELEASED") for job in (5, 4, 2, 3, 1)),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "release 1 6 0", "RELEASED"),
    *(say("a", "reserve", f"RESERVED {job} 1") for job in (2, 3, 4, 5, 1)),
)
conversation(
    "unpause_tube",
    put("a", "INSERTED 1"),
    say("a", "pause-tube default 86400", "PAUSED"),
    say("b", "reserve-with-timeout 0", "TIMED_OUT"),
    say("b", "peek-ready", "FOUND 1 1"),
    Block("b", b"reserve\r\n"),
    say("a", "stats-tube default", "OK ... current-waiting: 1"),
    say("a", "pause-tube default 0", "PAUSED"),
    hear("b", "RESERVED 1 1"),
    say("a", "stats-tube default", "OK ... pause: 0 ... pause-time-left: 0 ... cmd-pause-tube: 2"),
)
conversation(
    "what_a_pause_does_not_stop",
    put("a", "INSERTED 1"),
    put("a", "INSERTED 2", delay=99),
    say("a", "pause-tube default 86400", "PAUSED"),
    say("a", "reserve-job 1", "RESERVED 1 1"),
    say("a", "release 1 0 0", "RELEASED"),
    say("a", "kick-job 2", "KICKED"),
    put("a", "INSERTED 3"),
    say("a", "delete 1", "DELETED"),
    say("a", "peek-ready", "FOUND 2 1"),
    say("a", "reserve-with-timeout 0", "TIMED_OUT"),
)
conversation(
    "reserve_ttr_deadline_soon",
    put("a", "INSERTED 1", ttr=1),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "stats-job 1", "OK ... state: reserved"),
    say("a", "reserve-with-timeout 1", "DEADLINE_SOON"),
    say("a", "stats-job 1", "OK ... state: reserved"),
    say("a", "release 1 0 0", "RELEASED"),
    say("a", "stats-job 1", "OK ... state: ready"),
)
conversation(
    "reserve_job_already_reserved",
    put("a", "INSERTED 1"),
    say("a", "reserve-job 1", "RESERVED 1 1"),
    say("a", "reserve-job 1", MISSING),
    say("b", "reserve-job 1", MISSING),
)
conversation(
    "reserve_job_ready",
    put("a", "INSERTED 1", body="A"),
    put("a", "INSERTED 2", body="B"),
    say("a", "reserve-job 2", "RESERVED 2 1"),
    *each("a", MISSING, "reserve-job 3", "release 1 1 0"),
    say("a", "release 2 1 0", "RELEASED"),
)
conversation(
    "reserve_job_delayed",
    *(put("a", f"INSERTED {job}", delay=100) for job in (1, 2, 3)),
    say("a", "reserve-job 2", "RESERVED 2 1"),
    say("a", "release 2 1 0", "RELEASED"),
    say("a", "stats-job 2", "OK ... state: ready ... delay: 0 ... releases: 1"),
)
conversation(
    "reserve_job_buried",
    *(put("a", f"INSERTED {job}") for job in (1, 2)),
    *(say("a", "reserve", f"RESERVED {job} 1") for job in (1, 2)),
    *(say("a", f"bury {job} 1", "BURIED") for job in (1, 2)),
    *(say("a", f"reserve-job {job}", f"RESERVED {job} 1") for job in (2, 1)),
    *(say("a", f"release {job} 1 0", "RELEASED") for job in (2, 1)),
    *(say("a", f"stats-job {job}", "OK ... state: ready ... buries: 1") for job in (1, 2)),
    say("a", "stats", "OK ... cmd-reserve: 2 ... current-workers: 1"),
)
conversation(
    "close_releases_job",
    Block("a", b"reserve\r\n"),
    put("b", "INSERTED 1", ttr=100),
    hear("a", "RESERVED 1 1"),
    End("a", is_half=False),
    say("b", "reserve-with-timeout 9", "RESERVED 1 1"),
    say("b", "stats-job 1", "OK ... reserves: 2 ... releases: 0 ... timeouts: 0"),
)
conversation(
    "quit_releases_job",
    Block("a", b"reserve\r\n"),
    put("b", "INSERTED 1", ttr=100),
    hear("a", "RESERVED 1 1"),
    say("a", "quit", CLOSED),
    say("b", "reserve-with-timeout 9", "RESERVED 1 1"),
)
conversation(
    "two_workers_wait",
    Block("a", b"reserve\r\n"),
    Block("b", b"reserve\r\n"),
    say("c", "stats", "OK ... current-waiting: 2 ... current-workers: 2"),
    put("c", "INSERTED 1"),
    hear("a", "RESERVED 1 1"),
    put("c", "INSERTED 2"),
    hear("b", "RESERVED 2 1"),
)
conversation(
    "a_kick_of_many_gives_the_first_of_them_to_who_waits",
    *(put("a", f"INSERTED {job}", pri=pri, delay=99) for job, pri in ((1, 9), (2, 7), (3, 5))),
    Block("b", b"reserve\r\nreserve\r\nreserve\r\n"),
    say("a", "kick 3", "KICKED 3"),
    hear("b", "RESERVED 1 1", "RESERVED 3 1", "RESERVED 2 1"),
)
conversation(
    "replies_after_a_half_close",
    put("a", "INSERTED 1"),
    say("b", b"reserve\r\nreserve\r\nlist-tube-used\r\nuse", "RESERVED 1 1"),
    End("b", is_half=True),
    hear("b", "TIMED_OUT", "USING default", CLOSED),
    say("a", "reserve-with-timeout 9", "RESERVED 1 1"),
)
conversation(
    "what_comes_behind_quit_is_lost",
    say("a", b"list-tube-used\r\nquit\r\nput 0 0 1 1\r\nx\r\n", "USING default", CLOSED),
    say("b", "peek 1", MISSING),
)

# Odd lines.

conversation(
    "lines_that_are_no_command",
    *each("a", UNKNOWN, "", " stats", "STATS", "Put 0 0 1 1", "reserv", "list-tube", "putx",
          "peekx", "peek-foo", "kickx", "deletex 1", "put\t0 0 1 1", "foo\nbar", "put", "peek",
          "delete", "release", "bury", "kick", "kick-job", "touch", "use", "watch", "ignore"),
    *each("a", BAD, "stats-job", "stats-tube", "stats-jobx", "stats-tubex", "stats-foo", "statsx",
          "stats ", "stats foo", "reserve-with-timeout", "reserve-with-timeout0", "reserve-job",
          "reserve-jobx", "reservex", "reserve ", "reserve foo", "list-tubesx", "list-tubes ",
          "list-tubes-watch", "list-tubes-watchedx", "list-tube-usedx", "list-tube-used ",
          "peek-ready ", "peek-readyx", "peek-ready foo", "peek-delayedx", "peek-buried ",
          "stats-job 77\n", "\0", "stats\0", "sta\0ts", "put 0 0 1 1\0"),
    say("a", b"stats-job 77\n", ),
    say("a", b"\r\n", BAD),
    say("a", "stats", "OK ... cmd-stats: 1 ... cmd-peek-ready: 0"),
)  # fmt: skip
conversation(
    "names_of_tubes",
    *each("a", BAD, "use  foo", "use foo ", "use foo bar", "use ", f"use {LONG}n", "use a*b",
          "use -foo", "watch -", "watch a,b", "ignore  default", "stats-tube  default",
          "stats-tube default ", "use caf\u00e9"),
    *(say("a", f"use {name}", f"USING {name}") for name in ("a-+/;.$_()Z9", "$", "()", "1", "a-")),
    say("a", "stats", "OK ... cmd-use: 5 ... cmd-watch: 0"),
)  # fmt: skip
conversation(
    "the_loose_line_of_pause_tube",
    *each("a", BAD, "pause-tube", "pause-tube ", "pause-tube default", "pause-tube default ",
          "pause-tube default x", "pause-tube default 4294967296", "pause-tube default 1 ",
          "pause-tube default 1 1", "pause-tube -default 0", f"pause-tube {'n' * 201} 0",
          "pause-tube default -1", "pause-tube d,x 0"),
    *each("a", "PAUSED", "pause-tubedefault 0", "pause-tube   default   0",
          "pause-tube default 0", "pause-tube default 00000"),
    *each("a", MISSING, "pause-tubes 0", "pause-tube nonesuch 0"),
    say("a", "stats", "OK ... cmd-pause-tube: 8"),
    say("a", "stats-tube default", "OK ... cmd-pause-tube: 4"),
)  # fmt: skip
conversation(
    "whatever_begins_with_quit",
    *(say(f"a{n}", line, CLOSED) for n, line in enumerate(("quit", "quitx", "quit 1", "quit\n"))),
)
conversation(
    "the_number_of_reserve_with_timeout",
    *each("a", "TIMED_OUT", "reserve-with-timeout 0", "reserve-with-timeout 000",
          "reserve-with-timeout   0", "reserve-with-timeout 0foo", "reserve-with-timeout 0 foo",
          "reserve-with-timeout 0 "),
    *each("a", BAD, "reserve-with-timeout x", "reserve-with-timeout ", "reserve-with-timeout -0",
          "reserve-with-timeout +0", "reserve-with-timeout \t0",
          "reserve-with-timeout 4294967296"),
)  # fmt: skip
conversation(
    "a_thousand_commands_in_one_packet",
    say("a", b"".join(b"put 0 0 9 1\r\n%d\r\ndelete %d\r\n" % (job % 10, job)
                      for job in range(1, 501)),
        *(word for job in range(1, 501) for word in (f"INSERTED {job}", "DELETED"))),
    say("a", "stats", "OK ... cmd-put: 500 ... current-jobs-ready: 0"),
)  # fmt: skip

# What takes time.

conversation(
    "delayed_to_ready",
    put("a", "INSERTED 1", delay=1),
    say("a", "stats-tube default", "OK ... current-jobs-delayed: 1 ... current-jobs-ready: 0"),
    *wait(2),
    say("a", "stats-tube default", "OK ... current-jobs-delayed: 0 ... current-jobs-ready: 1"),
    say("a", "stats-job 1", "OK ... state: ready ... delay: 1 ... time-left: 0"),
    is_timed=True,
)
conversation(
    "pause",
    put("a", "INSERTED 1"),
    say("a", "pause-tube default 1", "PAUSED"),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "stats-tube default", "OK ... pause: 0 ... cmd-pause-tube: 1"),
    is_timed=True,
)
conversation(
    "reserve_with_timeout_2conns",
    say("a", "watch foo", "WATCHING 2"),
    Block("a", b"reserve-with-timeout 1\r\n"),
    say("b", "watch foo", "WATCHING 2"),
    hear("a", "TIMED_OUT"),
    say("b", "stats-tube foo", "OK ... current-waiting: 0 ... current-watching: 2"),
    is_timed=True,
)
conversation(
    "reserve_job_ttr_deadline_soon",
    put("a", "INSERTED 1", delay=100, ttr=1),
    say("a", "reserve-job 1", "RESERVED 1 1"),
    say("a", "stats-job 1", "OK ... state: reserved"),
    say("a", "reserve-with-timeout 1", "DEADLINE_SOON"),
    *wait(2),
    put("a", "INSERTED 2"),
    say("a", "stats-job 1", "OK ... state: ready ... timeouts: 1"),
    say("a", "touch 1", MISSING),
    say("a", "stats", "OK ... job-timeouts: 1"),
    is_timed=True,
)
conversation(
    "deadline_soon_for_who_waits",
    put("a", "INSERTED 1", ttr=2),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "reserve", "DEADLINE_SOON"),
    say("a", "touch 1", "TOUCHED"),
    say("a", "reserve-with-timeout 0", "TIMED_OUT"),
    say("a", "delete 1", "DELETED"),
    is_timed=True,
)
conversation(
    "a_delayed_job_keeps_its_place",
    put("a", "INSERTED 1", pri=5, delay=1),
    put("a", "INSERTED 2", pri=5),
    *wait(2),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "reserve", "RESERVED 2 1"),
    is_timed=True,
)

# With a log.

conversation("binlog_empty_exit", Restart(), put("a", "INSERTED 1"), is_logged=True)
conversation(
    "binlog_bury",
    put("a", "INSERTED 1"),
    say("a", "reserve", "RESERVED 1 1"),
    say("a", "bury 1 0", "BURIED"),
    is_logged=True,
)
conversation(
    "binlog_basic",
    put("a", "INSERTED 1"),
    Restart(),
    say("b", "delete 1", "DELETED"),
    say("b", "delete 1", MISSING),
    is_logged=True,
)
conversation(
    "binlog_allocation",
    *(put("a", f"INSERTED {job}", body="y" * 22) for job in range(1, 97)),
    *(say("a", f"delete {job}", "DELETED") for job in range(1, 97)),
    is_logged=True,
)
conversation(
    "binlog_keeps_all_states",
    say("a", "use t", "USING t"),
    put("a", "INSERTED 1", pri=1, ttr=100, body="ready"),
    put("a", "INSERTED 2", pri=2, delay=1000, body="delayed"),
    put("a", "INSERTED 3", pri=3, ttr=77, body="released"),
    say("a", "reserve-job 3", "RESERVED 3 8"),
    say("a", "release 3 9 500", "RELEASED"),
    Restart(),
    *(say("b", f"stats-job {job}", "OK") for job in (1, 2)),
    say("b", "stats-job 3", "OK ... state: delayed ... pri: 9 ... delay: 500 ... releases: 1"),
    *(say("b", f"peek {job}", f"FOUND {job}") for job in (1, 2, 3)),
    say("b", "stats", "OK ... current-jobs-delayed: 2 ... total-jobs: 0"),
    say("b", "list-tubes", "OK ... - t"),
    is_logged=True,
)
conversation(
    "binlog_read",
    say("a", "use test", "USING test"),
    say("a", "watch test", "WATCHING 2"),
    put("a", "INSERTED 1", ttr=120, body="test1"),
    put("a", "INSERTED 2", ttr=120, body="test2"),
    say("a", "reserve", "RESERVED 1 5"),
    say("a", "release 1 1 1", "RELEASED"),
    say("a", "reserve", "RESERVED 2 5"),
    say("a", "delete 2", "DELETED"),
    Restart(),
    say("b", "watch test", "WATCHING 2"),
    say("b", "reserve", "RESERVED 1 5"),
    say("b", "delete 1", "DELETED"),
    say("b", "delete 2", MISSING),
    is_logged=True,
    is_timed=True,
)
