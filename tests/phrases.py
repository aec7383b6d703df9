"""Phrases that readers stumble over, each with a better one; ``make lint`` looks for them.

python -m tests.phrases
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

PAGES: Final = (
    "README.md", "docs/README.md", "docs/access.md", "docs/architecture.md",
    "docs/beanstalkd-binlog.md", "docs/binlog-format.md", "docs/client-pool.md", "docs/client.md",
    "docs/concepts.md", "docs/console.md", "docs/durability.md", "docs/extensions.md",
    "docs/inspect.md", "docs/monitoring.md", "docs/operations.md", "docs/options.md",
    "docs/performance.md", "docs/protocol.md", "docs/recovery.md", "docs/replication-log.md",
    "docs/replication-nats.md", "docs/replication.md", "docs/scaling.md", "docs/security.md",
    "docs/testing.md", "docs/tls.md", "docs/tutorial.md", "docs/worker.md",
)  # fmt: skip
"""Pages that are held to it; others join when they are rewritten."""

PHRASES: Final = {
    r"[Ww]hoever": "the client, the caller: name the actor",
    r"(?<!\w)[Ww]ho (?!is\b|are\b|may\b)": "name the actor: client, worker, operator",
    r"so (many|long|much)(?! as)": "a number: N, up to N, S seconds",
    r"anew": "again",
    r"go(es)? on|went on": "continue, retry, resume",
    r"behind": "after, following",
    r"beside(?! beanstalkd)": "besides, in addition to, except",
    r"likewise": "also",
    r"for ever": "permanently, never deleted",
    r"for good": "permanently",
    r"at once": "immediately or simultaneously",
    r"(is|are) told": "is logged, is reported, prints",
    r"nobody (holds|has)": "unreserved",
    r"mend(s|ed)?": "fix",
    r"in vain": "without success",
    r"all but": "all except; or say what is left",
    r"but for": "except for",
    r"is to be|are to be": "will be, must be",
}  # fmt: skip
"""Patterns, whole words, with what to write instead."""

EXCEPTIONS: Final = {
    "how many seconds a worker may keep": "the question is the subject",
}
"""Texts in which a phrase is right, with the reason."""

_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`|\]\([^)\n]*\)", re.DOTALL)
"""Code, and where links lead."""


def findings(name: str, text: str) -> Iterator[str]:
    """Yield a line for each phrase in a page, except in code and targets of links."""
    for allowed in EXCEPTIONS:
        text = text.replace(allowed, "")
    text = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for pattern, better in PHRASES.items():
        for found in re.finditer(rf"\b(?:{pattern})\b", text):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{name}:{line}: {found[0]!r}: better {better}"


def main() -> int:
    """Look through the pages."""
    found = [line for name in PAGES for line in findings(name, (ROOT / name).read_text())]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
