"""Google's XML interface on top of an emulator that has the JSON one only: delta-rs speaks XML, and
pyarrow JSON, so of a Delta table both are needed, on the same objects.

https://cloud.google.com/storage/docs/xml-api/reference-methods, as far as delta-rs asks: objects
whole or in part, writes on the condition that there is none yet, lists in one page.
"""

from __future__ import annotations

from datetime import datetime
from email.utils import format_datetime
from threading import RLock
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers.objects import _checksums, _make_object_resource
from gcp_storage_emulator.server import RequestHandler

JSON: Final = ("/storage/", "/upload/", "/download/", "/batch", "/b/")
"""What the paths of the other interface begin with."""

ALONE: Final = RLock()
"""Of all writes: a condition is looked at and the object written in one step."""


class Handler(RequestHandler):  # type: ignore[misc]
    """Both interfaces."""

    def do_GET(self) -> None:
        if self.path.startswith(JSON):
            super().do_GET()
        elif self._name:
            self._object()
        else:
            self._list()

    def do_HEAD(self) -> None:
        self._object()

    def do_PUT(self) -> None:
        if self.path.startswith(JSON):
            super().do_PUT()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        source = self.headers.get("x-goog-copy-source")
        with ALONE:
            if self.headers.get("x-goog-if-generation-match") == "0" and self._found() is not None:
                self._answer(412)
                return
            if source:
                bucket, _, name = unquote(source).lstrip("/").partition("/")
                body = self.storage.get_file(bucket, name)
            made = _make_object_resource("", self._bucket, self._name, "", str(len(body)))
            made = _checksums(body, made)
            self.storage.create_file(self._bucket, self._name, body, made)
        self._answer(200, headers=_headers(made))

    def do_DELETE(self) -> None:
        if self.path.startswith(JSON):
            super().do_DELETE()
            return
        is_there = self._found() is not None
        if is_there:
            self.storage.delete_file(self._bucket, self._name)
        self._answer(204 if is_there else 404)

    @property
    def _bucket(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[0]

    @property
    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def _found(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.storage.get_file_obj(self._bucket, self._name)
        except NotFound:
            return None
        return found

    def _object(self) -> None:
        found = self._found()
        if found is None:
            self._answer(404)
            return
        body = self.storage.get_file(self._bucket, self._name)
        wanted = self.headers.get("Range", "")
        if not wanted:
            self._answer(200, body, _headers(found))
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        end = min(int(last) + 1, len(body)) if first and last else len(body)
        told = {"Content-Range": f"bytes {start}-{end - 1}/{len(body)}"}
        self._answer(206, body[start:end], _headers(found) | told)

    def _list(self) -> None:
        asked = dict(parse_qsl(urlsplit(self.path).query))
        found, folders = self.storage.get_file_list(
            self._bucket, asked.get("prefix"), asked.get("delimiter")
        )
        first = asked.get("start-after", "")
        parts = [
            f"<Contents><Key>{escape(each['name'])}</Key><Size>{each['size']}</Size>"
            f"<LastModified>{each['updated']}</LastModified>"
            f'<ETag>"{each["generation"]}"</ETag></Contents>'
            for each in found if each["name"] > first
        ]  # fmt: skip
        parts += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
                  for each in folders]  # fmt: skip
        text = f"<ListBucketResult>{''.join(parts)}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _answer(self, code: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _headers(found: dict[str, Any]) -> dict[str, str]:
    changed = datetime.fromisoformat(found["updated"])
    return {
        "ETag": f'"{found["generation"]}"', "x-goog-generation": found["generation"],
        "Last-Modified": format_datetime(changed, usegmt=True),
    }  # fmt: skip
