"""How a stream of JetStream must be set so that nothing acknowledged is lost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from beanstalk_twisted.replication.stream.interface import MAX_MESSAGE_BYTES, Copies, Refused

REPLICAS: Final = 3
"""Copies of the stream: one server may be gone, and two are still a quorum."""

NATS: Final = "NATS"
"""What the server is called here that is in no cluster."""

HEADERS_BYTES: Final = 1 << 10
"""Room for the headers of a message, beside `MAX_MESSAGE_BYTES`; ours has less than 100 bytes."""

_EXPECTED: Final[tuple[tuple[str, object, str], ...]] = (
    ("storage", "file", "is in memory"),
    ("retention", "limits", "drops what was read"),
    ("max_age", 0, "drops what is old"),
    ("max_msgs", -1, "holds so many messages only"),
    ("max_msgs_per_subject", -1, "holds so many messages only"),
    ("deny_purge", False, "cannot be purged, so it grows for ever"),
    ("sealed", False, "takes nothing more"),
    ("no_ack", False, "acknowledges nothing"),
    ("mirror", None, "is a mirror"),
    ("sources", None, "takes messages of other streams"),
    ("subject_transform", None, "changes subjects"),
    ("persist_mode", "default", "acknowledges before it writes"),
    ("subject_delete_marker_ttl", 0, "appends messages of its own where others expire"),
)
"""Settings, what they must be, and what a stream does in which they are not."""

_FIXED: Final = frozenset({"storage", "deny_purge", "sealed", "persist_mode"})
"""Those that NATS changes back in no stream; nor a ``retention`` of ``workqueue``."""


def subject(name: str) -> str:
    return f"{name}.log"


def wanted(name: str, replicas: int) -> dict[str, object]:
    return {
        "name": name, "subjects": [subject(name)], "num_replicas": replicas, "storage": "file",
        "retention": "limits", "discard": "new", "max_msgs": -1, "max_bytes": -1, "max_age": 0,
        "max_msgs_per_subject": -1, "max_msg_size": -1, "max_consumers": -1, "deny_purge": False,
        "allow_direct": False, "allow_msg_ttl": True,
    }  # fmt: skip


def can_expire(config: Mapping[str, Any]) -> bool:
    """Whether a stream removes messages that say when: NATS does from 2.11 on, where that is
    allowed.
    """
    return bool(config.get("allow_msg_ttl"))


def copies_of(info: Mapping[str, Any]) -> Copies:
    """Of a stream on a single server JetStream names none."""
    wanted = info["config"].get("num_replicas", 1)
    cluster = info.get("cluster")
    if not cluster:
        return Copies(wanted, NATS, (NATS,))
    leader = str(cluster.get("leader") or "")
    others = cluster.get("replicas") or []
    is_there = {
        each["name"]: bool(each.get("current")) and not each.get("offline") for each in others
    }
    current = tuple(sorted(name for name in is_there if is_there[name]))
    behind = tuple(sorted(name for name in is_there if not is_there[name]))
    return Copies(wanted, leader, ((leader, *current) if leader else current), behind)


def check(url: str, name: str, config: Mapping[str, Any]) -> list[str]:
    """:return: warnings, a line each.
    :raise Refused: the stream is something else, or may lose messages.
    """
    for what, advice in _faults(name, config):
        raise Refused(f"{url}: {what}. Nothing was written to it. {advice}")
    return _warnings(url, name, config)


def problems(url: str, name: str, config: Mapping[str, Any]) -> list[str]:
    """What is to be said of a stream that is in use, a line each."""
    faults = [
        f"{url}: {what}; no server starts on it as it is. {advice}"
        for what, advice in _faults(name, config)
    ]
    return faults + _warnings(url, name, config)


def _faults(name: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong, and what to do about it."""
    if config.get("subjects") != [subject(name)]:
        found = config.get("subjects")
        what = f"the stream {name} is of something else: its subjects are {found}, "
        yield what + f"not {subject(name)}", "Take another name"
    for setting, right, why in _EXPECTED:
        if (found := config.get(setting) or _nothing(right)) != right:
            what = f"the stream {name} {why}: {setting} is {found!r}, not {right!r}"
            yield what, _advice(name, setting, found)
    largest = config.get("max_msg_size", -1)
    if -1 < largest < MAX_MESSAGE_BYTES + HEADERS_BYTES:
        what = f"the stream {name} takes messages of {largest} bytes only"
        yield what, f"`nats stream edit {name} --max-msg-size=-1`"
    if config.get("max_bytes", -1) != -1 and config.get("discard") != "new":
        what = f"the stream {name} drops its oldest messages at {config['max_bytes']} bytes"
        yield what, f"`nats stream edit {name} --max-bytes=-1 --discard=new`"


def _advice(name: str, setting: str, found: object) -> str:
    if setting in _FIXED or found == "workqueue":
        return (
            f"NATS never changes that: take another name; or, if nobody wants what is in it,"
            f" `nats stream rm {name}`: it is made anew"
        )
    return f"`nats stream edit {name}` changes it, or take another name"


def too_small(max_payload: int) -> str:
    """:return: why a server cannot be used that takes no larger messages; nothing if it can."""
    if max_payload >= MAX_MESSAGE_BYTES + HEADERS_BYTES:
        return ""
    return (
        f"it takes messages of {max_payload} bytes, and needs to take"
        f" {MAX_MESSAGE_BYTES + HEADERS_BYTES}: set max_payload in the configuration of each server"
    )


def made_beside(url: str, name: str, others: Sequence[str]) -> str:
    """A warning: the name may have been mistyped."""
    return (
        f"{url}: there was no stream {name}, it was made; there are those of other queues:"
        f" {', '.join(others)}. If one of these was meant, end this server, correct --replicate,"
        f" and run `nats stream rm {name}`"
    )


def _nothing(right: object) -> object:
    # The server leaves out what is not set.
    return None if right is None else right if right in (False, "default") else 0


def _warnings(url: str, name: str, config: Mapping[str, Any]) -> list[str]:
    found = []
    if (replicas := config.get("num_replicas", 1)) < REPLICAS:
        found.append(
            f"{url}: the stream {name} has {replicas} of {REPLICAS} copies: when a server of NATS"
            f" is lost, so may be jobs. With {REPLICAS} servers:"
            f" `nats stream edit {name} --replicas={REPLICAS}`"
        )
    if (limit := config.get("max_bytes", -1)) != -1:
        found.append(
            f"{url}: the stream {name} takes nothing more at {limit} bytes; changes are refused"
            f" then. `nats stream edit {name} --max-bytes=-1`"
        )
    if not can_expire(config):
        found.append(
            f"{url}: the stream {name} keeps heartbeats until the next trim, some 15 MB a day while"
            f" the queue is idle. With NATS 2.11 or newer: `nats stream edit {name}"
            " --allow-msg-ttl`, then start this server again"
        )
    return found
