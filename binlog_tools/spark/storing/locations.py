"""The place of a table: a directory or a URL."""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from typing import Final, NamedTuple
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

ANYBODY: Final = {
    "google_skip_signature": "true",
    "google_service_account_key": json.dumps({
        "client_email": "", "private_key_id": "", "private_key": "", "disable_oauth": True,
    }),
}  # fmt: skip
"""What makes deltalake ask Google's store without credentials: the first for reads; writes would
ask the machine for a token all the same, were there no account that needs none."""


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

    def system(self) -> tuple[pa_fs.FileSystem, str]:
        """pyarrow's file system, and the path of the table in it.

        :raise OSError: pyarrow has no file system for it here.
        """
        if self.is_local:
            return pa_fs.LocalFileSystem(), self.path
        return open_files(self.path)

    def names(self) -> list[str]:
        """The names in this folder, sorted; none if there is no folder."""
        with self.writing():
            entries, folders = listed(*self.system())
            return sorted([*folders, *(entry.name for entry in entries)])

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
            system, root = self.system()
        bucket = root.partition("/")[0]
        is_gone = False
        # Who may not look at a bucket may still be allowed to write into it.
        with contextlib.suppress(OSError, pa.ArrowException):
            has_buckets = system.type_name != "hdfs"
            is_gone = has_buckets and not system.get_file_info(bucket).type.value
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
