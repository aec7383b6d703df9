"""Where a table is: a directory or a URL, and the door to its files."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol
from urllib.parse import SplitResult

import pyarrow as pa
import pyarrow.fs as pa_fs

from beanstalk_twisted.object_storage.store import (
    ANONYMOUS,
    BadUrl,
    azure_secrets,
    is_url,
    listed,
    open_files,
    parse_url,
    shown,
)
from binlog_tools.spark.definitions.addresses import normal
from binlog_tools.spark.definitions.errors import TableError

UNFINISHED: Final = "_unfinished"
"""Beside tables: not all of them have been made, or some are of an earlier run."""

BUFFER_BYTES: Final = 5 << 20
"""Bytes that are collected before object storage is asked to take them: the least of an S3 part."""


ANYBODY: Final = {
    "google_skip_signature": "true",
    "google_service_account_key": json.dumps({
        "client_email": "", "private_key_id": "", "private_key": "", "disable_oauth": True,
    }),
}  # fmt: skip
"""What makes deltalake ask Google's store without credentials: the first for reads; writes would
ask the machine for a token all the same, were there no account that needs none."""


class Files(Protocol):
    """The files of a table, by names relative to it, their parts parted by slashes.  All methods
    raise OSError.
    """

    def create(self, name: str) -> IO[bytes]:
        """Open a new file for writing, and make its folders."""

    def read(self, name: str) -> bytes:
        """A whole file."""

    def sync(self, name: str) -> None:
        """Return when the closed file, and its name, survive a power loss."""

    def names(self, folder: str = "", is_deep: bool = False) -> list[str]:
        """What is directly in a folder, or all files below it, sorted; none if there is no
        folder.
        """

    def remove(self, name: str) -> None:
        """Delete a file."""


class ArrowFiles(Files):
    """The real door: one of pyarrow's file systems.

    :ivar system: the file system.
    :ivar root: the table's path in it.
    """

    def __init__(
        self, system: pa_fs.FileSystem, root: str, synced: Callable[[Path], None] | None = None
    ) -> None:
        """:param synced: syncs a file or folder of this machine; None: fsync."""
        self.system = system
        self.root = root
        self._synced = synced or _sync
        self._is_local = system.type_name == "local"
        self._lasting: set[tuple[str, int]] = set()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root

    def create(self, name: str) -> IO[bytes]:
        path = self.path(name)
        if self._is_local or self.system.type_name == "hdfs":
            self.system.create_dir(path.rpartition("/")[0], recursive=True)
        stream: IO[bytes] = self.system.open_output_stream(path, buffer_size=BUFFER_BYTES)
        return stream

    def read(self, name: str) -> bytes:
        with self.system.open_input_file(self.path(name)) as file:
            raw: bytes = file.read()
        return raw

    def sync(self, name: str) -> None:
        if not self._is_local:
            return
        path = Path(self.path(name))
        self._synced(path)
        inner: list[tuple[str, int]] = []
        for folder in list(path.parents)[: name.count("/") + 2]:
            self._synced(folder)
            self._lasting.update(inner)
            inner = [(str(folder), folder.stat().st_ino)]
            # Its own name was synced before: what is above it has nothing new.
            if inner[0] in self._lasting:
                return

    def names(self, folder: str = "", is_deep: bool = False) -> list[str]:
        if not is_deep:
            entries, folders = listed(self.system, self.path(folder))
            return sorted([*folders, *(entry.name for entry in entries)])
        chosen = pa_fs.FileSelector(self.path(folder), allow_not_found=True, recursive=True)
        start = len(self.path(folder)) + 1
        return sorted(
            each.path[start:] for each in self.system.get_file_info(chosen) if each.is_file
        )

    def remove(self, name: str) -> None:
        self.system.delete_file(self.path(name))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Location(NamedTuple):
    """A table's place, which may be sent to other machines.

    :ivar path: an absolute path of this machine, or a URL with its options.
    """

    path: str

    @classmethod
    def of(cls, text: str) -> "Location":
        """:param text: a path, ``file:`` or one of the URLs of `object_storage`.
        :raise TableError: the URL names no store.
        """
        if is_url(text):
            try:
                parse_url(text)
            except BadUrl as problem:
                raise TableError("TABLE_OPTION", f"{text.partition('?')[0]}: {problem}") from None
            return cls(text)
        return cls(os.path.abspath(normal(text)))

    @property
    def is_local(self) -> bool:
        return not is_url(self.path)

    def __str__(self) -> str:
        """The place without the options of its URL: as messages show it."""
        return self.path if self.is_local else shown(self.path)

    def files(self) -> ArrowFiles:
        """Open the door; nothing is asked of it yet.

        :raise OSError: pyarrow has no file system for it here.
        """
        if self.is_local:
            return ArrowFiles(pa_fs.LocalFileSystem(), self.path)
        return ArrowFiles(*open_files(self.path))

    def storage_options(self) -> dict[str, str]:
        """What deltalake has to know beside the environment to open the same place."""
        if self.is_local:
            return {}
        split, options = parse_url(self.path)
        if split.scheme.startswith("abfs"):
            return _azure_options(split, options)
        found = {"AWS_REGION": options["region"]} if "region" in options else {}
        if split.scheme == "gs" and split.username == ANONYMOUS:
            found |= ANYBODY
        name = "google_base_url" if split.scheme == "gs" else "AWS_ENDPOINT_URL"
        return found | _endpoint(name, options)

    @property
    def delta_url(self) -> str:
        """The place as deltalake takes it."""
        return str(self).replace(f"gs://{ANONYMOUS}@", "gs://", 1)

    def refuse_hopeless(self, code: str = "TABLE_UNWRITABLE") -> None:
        """:param code: of the error if there is no bucket.
        :raise TableError: no table can be here: it is a file, or in a bucket that is not there.
        """
        if self.is_local:
            if os.path.isfile(self.path):
                what = "it is a file; name a directory; nothing was written"
                raise TableError("TABLE_EXISTS", f"{self}: {what}")
            return
        with self.writing():
            files = self.files()
        bucket = files.root.partition("/")[0]
        is_gone = False
        # Who may not look at a bucket may still be allowed to write into it.
        with contextlib.suppress(OSError, pa.ArrowException):
            has_buckets = files.system.type_name != "hdfs"
            is_gone = has_buckets and not files.system.get_file_info(bucket).type.value
        if is_gone:
            what = f"there is no bucket {bucket}; make it, or name another; nothing was written"
            raise TableError(code, f"{self}: {what}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """:raise TableError: in the place of an error of the file system within the block."""
        try:
            yield
        except (OSError, pa.ArrowException) as problem:
            raise _unwritable(self, problem) from None


def _azure_options(split: SplitResult, options: dict[str, str]) -> dict[str, str]:
    """What deltalake has to know of Azure; it reads other variables than Azure's command line."""
    secrets = azure_secrets(os.environ)
    account = (split.hostname or "").partition(".")[0]
    return {
        **{f"azure_storage_{name}": secret for name, secret in secrets.items()},
        **_endpoint("azure_endpoint", options, f"/{account}"),
    }


def _endpoint(name: str, options: dict[str, str], path: str = "") -> dict[str, str]:
    """:param name: deltalake's, of what says where a store is."""
    if "endpoint_override" not in options:
        return {}
    scheme = options.get("scheme", "https")
    url = f"{scheme}://{options['endpoint_override']}{path}"
    return {name: url, "allow_http": str(scheme == "http").lower()}


def _unwritable(location: Location, problem: Exception) -> TableError:
    number = getattr(problem, "errno", None)
    text = str(problem.args[-1] if problem.args else problem).splitlines()[0]
    # Of a store that is elsewhere the number says less than the text.
    why = os.strerror(number) if number and location.is_local else text
    room = "; make room and run it again" if number == errno.ENOSPC else ""
    what = "the table is as it was before"
    return TableError("TABLE_UNWRITABLE", f"{location}: {why}; {what}{room}")


@contextlib.contextmanager
def unfinished(tables: str) -> Iterator[None]:
    """The tables below a place are not all made until the block has ended without an error.

    :raise TableError: nothing can be written there.
    """
    location = Location.of(tables)
    location.refuse_hopeless()
    with location.writing():
        files = location.files()
        files.create(UNFINISHED).close()
    yield
    # Another run may have come to its end before.
    with location.writing(), contextlib.suppress(FileNotFoundError):
        files.remove(UNFINISHED)
