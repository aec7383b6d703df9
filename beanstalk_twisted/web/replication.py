"""Replication over HTTP: its metrics and its document."""

from typing import Any

from beanstalk_twisted.replication.membership import ACTIVE, STANDBY, Situation
from beanstalk_twisted.web.exchange import Document, json_document
from beanstalk_twisted.web.exposition import Writer, labelled
from beanstalk_twisted.wire.layouts import REPLICATION


def write_replication(out: Writer, situation: Situation) -> None:
    """Write the metrics of replication; there are none without ``--replicate``.

    Each has the name of the stream: one job of Prometheus may scrape the servers of several queues.
    """
    of_queue = {"stream": situation.stream}
    labels = labelled(of_queue)
    out.family("beanstalkd_replication_role", "gauge", "Which role this server has", [
        (labelled({**of_queue, "role": role}), int(situation.role == role))
        for role in (ACTIVE, STANDBY)
    ])  # fmt: skip
    is_well = not (situation.role == ACTIVE and situation.why)
    out.gauges("beanstalkd_replication_", [
        ("is_well", "0 if this server is active, and the stream silent", int(is_well)),
        ("is_in_sync", "1 of an active server, and of a standby that may become active at once",
         int(situation.is_in_sync)),
        ("standbys", "Standbys that are heard", len(situation.standbys)),
    ], labels)  # fmt: skip
    stats: dict[str, Any] = {**situation.stats(), "lag-seconds": situation.lag_s}
    for metric in REPLICATION.metrics:
        out.single(*metric.head, stats[metric.key], labels)
    copies = situation.copies
    # Left out while NATS does not say, so that an alert is about what is known.
    if copies is not None:
        out.gauges("beanstalkd_replication_stream_", (
            ("copies", "Copies that the stream is to have", copies.wanted),
            ("copies_current", "Those of them that are there and have all", len(copies.current)),
            ("has_leader", "Whether a NATS server leads it", int(bool(copies.leader))),
        ), labels)  # fmt: skip


def replication_document(situation: Situation | None) -> Document:
    if situation is None:
        return json_document({"role": "alone"})
    copies = situation.copies
    return json_document({
        "role": situation.role, "why_not_ready": situation.why, "name": situation.who.name,
        "active": situation.active, "is_in_sync": situation.is_in_sync,
        "position": situation.position, "lease_s": round(situation.lease_s, 3),
        "lag_records": situation.lag_records,
        "lag_bytes": situation.lag_bytes, "lag_s": round(situation.lag_s, 3),
        "standbys": [
            {
                "name": each.name, "addresses": each.addresses.split(), "position": each.position,
                "lsn": each.lsn, "is_in_sync": each.is_in_sync,
            }
            for each in situation.standbys
        ],
        "takeovers": situation.takeovers, "fenced": situation.fenced,
        "stream": None if copies is None else {
            "leader": copies.leader, "copies": copies.wanted, "current": list(copies.current),
            "behind": list(copies.behind),
        },
    })  # fmt: skip


def why_closed(situation: Situation | None) -> str:
    """Return why only `routes.OF_STANDBYS` are served; empty if all are."""
    if situation is None or situation.role == ACTIVE:
        return ""
    where = situation.active or "no server that is known"
    return f"this server is a standby; active is {where}"
