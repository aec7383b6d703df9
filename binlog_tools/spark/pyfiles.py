"""
The zip that executors need of us: ``python -m binlog_tools.spark.pyfiles -o beanstalk_spark.zip``.

Neither Twisted nor click is in it, nor anything compiled; numpy and pyarrow have to be on the
executors.  The same files give the same bytes.
"""

import argparse
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

DEFAULT_NAME: Final = "beanstalk_spark.zip"

OF_THE_SERVER: Final = (
    "__init__.py", "exports.py", "printable.py", "client/__init__.py", "client/addresses.py",
    "client/hosts/__init__.py", "client/hosts/rounds.py", "client/tls/__init__.py",
    "client/tls/faults.py", "wire/__init__.py", "wire/yaml.py",
    *(f"replication/{name}.py" for name in (
        "__init__", "stream/__init__", "stream/addresses", "stream/door", "stream/messages",
        "stream/opening",
    )),
)  # fmt: skip
"""Modules beside those that read logs: the sink reads addresses and what a server says, and goes
from one host to the next; what opens logs tells URLs of streams from others."""

PACKAGES: Final = ("beanstalk_twisted/binlog", "beanstalk_twisted/object_storage", "binlog_tools")
"""All modules of these, but for the commands."""

_ROOT: Final = Path(__file__).resolve().parents[2]
_LEFT_OUT: Final = ("binlog_tools/cli/", "binlog_tools/queue/cli/")
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)
"""What every file in the zip is dated."""


def members() -> Iterator[Path]:
    """The files, relative to where the packages are."""
    for module in OF_THE_SERVER:
        yield Path("beanstalk_twisted", module)
    for package in PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            inside = path.relative_to(_ROOT)
            if not inside.as_posix().startswith(_LEFT_OUT):
                yield inside


def make_zip(path: str) -> int:
    """
    Write the zip, complete or not at all.

    :return: how many files it holds.
    """
    partial = f"{path}.part"
    count = 0
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members():
            item = zipfile.ZipInfo(member.as_posix(), _MOMENT)
            item.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(item, (_ROOT / member).read_bytes())
            count += 1
    os.replace(partial, path)
    return count


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m binlog_tools.spark.pyfiles",
        description="Write the zip for spark-submit --py-files.",
    )
    parser.add_argument("-o", "--output", default=DEFAULT_NAME, metavar="ZIP")
    options = parser.parse_args(arguments)
    try:
        count = make_zip(options.output)
    except OSError as problem:
        parser.exit(73, f"{options.output}: {problem.strerror}; nothing was written\n")
    sys.stdout.write(f"{options.output}: {count} files\n")


if __name__ == "__main__":
    main()
