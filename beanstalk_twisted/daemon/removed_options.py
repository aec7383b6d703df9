"""Options that the server once had, and what holds without each of them."""

from collections.abc import Iterable
from typing import Final

REMOVED: Final = {
    "busy-poll": "the server looks for a lone client's next command for 60 microseconds",
    "compaction-pace": "slices of compaction follow each other after 5 ms",
    "compaction-spare-segments": "the log may be two segments larger than --compaction-factor says",
    "http-report": "have any web server show the folder of reports",
    "hub": "on Linux all plain connections share one reader",
    "metrics-compat": "have Prometheus rename the metrics by metric_relabel_configs",
    "on-io-error": "a failed write or sync ends the server with exit code 74",
    "v1-ttr": "jobs put in protocol v1 have a TTR of 120 seconds",
}


def removed_among(words: Iterable[str]) -> list[str]:
    """Return one sentence for each removed option, in order; words are ``--hub``, ``--hub=off``."""
    names = dict.fromkeys(word[2:].partition("=")[0] for word in words if word.startswith("--"))
    return [
        f"--{name} was removed, leave it out: {REMOVED[name]}" for name in names if name in REMOVED
    ]
