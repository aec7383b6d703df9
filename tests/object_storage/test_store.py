"""What is asked of object storage: the same of the simulated one, of pyarrow's, and of an S3
server.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanstalk_twisted.object_storage.store import (
    ArrowStore,
    BadUrl,
    Entry,
    Store,
    azure_secrets,
    is_url,
    local_path,
    one_line,
    open_store,
    parse_url,
)
from tests.object_storage.emulators import AZURITE, Emulator
from tests.object_storage.memory import MemoryStore
from tests.object_storage.s3_server import S3Server

REMOTE = ["s3", "gs", "abfs"] if AZURITE else ["s3", "gs"]
KINDS = ["memory", "directory", *(pytest.param(kind, marks=pytest.mark.exhaustive)
                                  for kind in REMOTE)]  # fmt: skip


def store_of(kind: str, request: pytest.FixtureRequest, path: Path) -> Store:
    if kind == "memory":
        return MemoryStore()
    if kind in REMOTE:
        server: S3Server | Emulator = request.getfixturevalue(kind)
        return open_store(server.url(f"{os.urandom(8).hex()}/deep"))
    fs = pytest.importorskip("pyarrow.fs")
    return ArrowStore(fs.LocalFileSystem(), str(path), f"file://{path}")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request.param, request, tmp_path)


def test_a_new_store_is_usable_and_empty(store: Store) -> None:
    store.check()
    assert (store.listing().entries, store.listing("a").entries, store.folders()) == ([], [], [])


@pytest.mark.parametrize("chunks", [[b""], [b"x"], [bytes(range(256)) * 100], [b"ab", b"", b"cde"]])
def test_what_was_written_is_read(store: Store, chunks: list[bytes]) -> None:
    store.write("a/x", iter(chunks))
    content = b"".join(chunks)
    assert store.size("a/x") == len(content)
    assert store.read("a/x", 0, len(content)) == content


def test_an_object_of_several_parts_of_an_upload(store: Store) -> None:
    if store.path.startswith("gs://"):
        pytest.skip("the emulator does not understand them; Google's storage does")
    parts = [os.urandom(1 << 20) for _ in range(11)]
    store.write("large", parts)
    assert store.size("large") == 11 << 20
    assert store.read("large", (5 << 20) - 3, (6 << 20) + 3) == (
        parts[4][-3:] + parts[5] + parts[6][:3]
    )


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 6, b"abcdef"), (2, 4, b"cd"), (5, 6, b"f"), (4, 99, b"ef"), (6, 9, b""), (7, 9, b""),
     (3, 3, b"")],
)  # fmt: skip
def test_a_range_is_read_to_the_end_at_most(
    store: Store, start: int, end: int, expected: bytes
) -> None:
    store.write("x", [b"abcdef"])
    assert store.read("x", start, end) == expected


def test_a_second_write_takes_the_place_of_the_first(store: Store) -> None:
    store.write("x", [b"a long one"])
    store.write("x", [b"short"])
    assert (store.size("x"), store.read("x", 0, 99)) == (5, b"short")


def test_a_folder_lists_its_objects_and_not_those_of_folders_in_it(store: Store) -> None:
    for name in ("b/2", "a", "b/1", "b/c/3", "d/4"):
        store.write(name, [name.encode()])
    assert store.listing().entries == [Entry("a", 1)]
    assert store.listing("b").entries == [Entry("1", 3), Entry("2", 3)]
    assert store.listing("none").entries == []
    assert store.folders() == ["b", "d"]
    assert store.listing() == ([Entry("a", 1)], ["b", "d"])
    assert store.listing("b") == ([Entry("1", 3), Entry("2", 3)], ["c"])


def test_a_moved_object_has_its_new_name_alone_until_it_is_removed(store: Store) -> None:
    store.write("a/x.part", [b"abc"])
    store.move("a/x.part", "a/x")
    assert store.listing("a").entries == [Entry("x", 3)]
    assert store.read("a/x", 0, 3) == b"abc"
    store.write("a/y", [b"abc"])
    store.remove("a/x")
    assert store.listing("a").entries == [Entry("y", 3)]


Action = Callable[[Store], object]


@pytest.mark.parametrize(
    "action",
    [
        lambda store: store.size("none"),
        lambda store: store.read("none", 0, 1),
        lambda store: store.move("none", "x"),
        lambda store: store.remove("none"),
    ],
    ids=["size", "read", "move", "remove"],
)
def test_what_is_not_there_is_an_error_that_names_it(store: Store, action: Action) -> None:
    store.write("other", [b"x"])
    with pytest.raises(FileNotFoundError) as caught:
        action(store)
    problem = caught.value
    assert (problem.errno, problem.strerror) == (errno.ENOENT, "there is no such object")
    assert problem.filename == f"{store.path}/none"
    assert store.listing().entries == [Entry("other", 1)]


def test_what_the_chunks_raise_is_told_as_theirs(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise FileNotFoundError(errno.ENOENT, "of the log", "segment")

    with pytest.raises(FileNotFoundError, match="of the log: 'segment'"):
        store.write("x", broken())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("s3://b/x", True), ("S3://b", True), ("s3a://b", True), ("hdfs://h:9000/x", True),
     ("/var/lib/bs", False), ("s3:/b", False), ("bs", False), ("http://x/y", False),
     ("./s3://b", False)],
)  # fmt: skip
def test_a_url_is_told_from_a_path(text: str, expected: bool) -> None:
    assert is_url(text) is expected


@pytest.mark.parametrize(
    "text", ["/var/lib/bs", "file:/var/lib/bs", "file:///var/lib/bs", "file://localhost/var/lib/bs"]
)
def test_a_file_url_names_a_path(text: str) -> None:
    assert local_path(text) == "/var/lib/bs"


@pytest.mark.parametrize(
    ("url", "shown", "options"),
    [
        ("s3://b/x/y", "s3://b/x/y", {}),
        ("s3a://b/x", "s3://b/x", {}),
        ("S3://b/X?region=eu-central-1&scheme=http", "s3://b/X",
         {"region": "eu-central-1", "scheme": "http"}),
        ("gs://anonymous@b/x", "gs://anonymous@b/x", {}),
        ("abfs://c@account.dfs.core.windows.net/x", "abfs://c@account.dfs.core.windows.net/x", {}),
        ("hdfs://host:8020/x", "hdfs://host:8020/x", {}),
    ],
)  # fmt: skip
def test_what_a_url_says(url: str, shown: str, options: dict[str, str]) -> None:
    split, found = parse_url(url)
    assert (split.geturl(), found) == (shown, options)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://h/x", "its scheme is none of s3, s3a, gs, abfs, abfss, hdfs"),
        ("s3://", "a bucket follows s3://"),
        ("abfs:///x", "a container follows abfs://"),
        ("s3://key:secret@b/x", "it has a secret in it; credentials belong in the environment"),
        ("s3://key@b/x", "it has a secret in it; credentials belong in the environment"),
        ("s3://b/x#y", "it has a # in it"),
        ("s3://b/x?access_key=y", "access_key is none of the options region, endpoint_override"),
        ("gs://b/x?project_id=y", "project_id is none of the options endpoint_override, scheme"),
        ("gs://key@b/x", "before the @ of gs:// there can only be anonymous"),
        ("hdfs://h/x?user=y", "URLs of hdfs:// have no options"),
        ("abfs://c/x", "it has not the form abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
        ("abfss://c@account/x", "it has not the form abfss://CONTAINER@ACCOUNT.dfs"),
        ("abfs://c:key@account.dfs.core.windows.net/x", "it has a secret in it"),
        ("abfs://c@a.dfs.core.windows.net/x?region=y", "region is none of the options endpoint"),
        ("hdfs://h:port/x", "Port could not be cast to integer value"),
        ("s3://[b/x", "Invalid IPv6 URL"),
    ],
)
def test_a_url_that_names_no_store_is_refused_with_its_reason(url: str, why: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_url(url)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, {}), ({"AZURE_STORAGE_SAS_TOKEN": "t"}, {"sas_token": "t"}),
     ({"AZURE_STORAGE_KEY": "k", "AZURE_STORAGE_SAS_TOKEN": "t"}, {"account_key": "k"})],
)  # fmt: skip
def test_azure_is_opened_by_a_key_or_a_token(
    environ: dict[str, str], expected: dict[str, str]
) -> None:
    assert azure_secrets(environ) == expected


@pytest.mark.parametrize(
    "what",
    ["ACCESS_DENIED during HeadBucket operation: No response body.",
     "INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: No.",
     "SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation: No.",
     "UNKNOWN (HTTP status 403) during ListObjectsV2 operation: Unable to parse ExceptionName: "
     "ExpiredToken Message: No."],
)  # fmt: skip
def test_credentials_that_are_refused_name_where_they_come_from(what: str) -> None:
    told = one_line(OSError(f"When listing objects:\nAWS Error {what}"))
    assert told.startswith(f"When listing objects: AWS Error {what.rstrip('.')}; look at AWS_ACC")


@pytest.mark.parametrize(
    ("said", "advice"),
    [("Azure Error: [AuthorizationFailure] 403 Server failed", "look at AZURE_STORAGE_KEY"),
     ("google::cloud::Status(PERMISSION_DENIED: no)", "look at GOOGLE_APPLICATION_CREDENTIALS"),
     ("google::cloud::Status(UNAVAILABLE: PERMISSION_D)", "")],
)  # fmt: skip
def test_other_stores_name_where_theirs_come_from(said: str, advice: str) -> None:
    told = one_line(OSError(f"When asking:\n{said}"))
    assert told.startswith(f"When asking: {said}; {advice}" if advice else f"When asking: {said}")
    assert bool(advice) == ("environment" in told)


@pytest.mark.parametrize("what", ["No space left on device", "AWS Error SLOW_DOWN.", "HTTP 403"])
def test_of_other_errors_nothing_is_advised(what: str) -> None:
    assert one_line(OSError(what)) == what


def test_what_pyarrow_looked_for_in_vain_is_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wheels have no libhdfs, so this finds Java or not."""
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("HADOOP_HOME", "/nowhere")
    monkeypatch.delenv("ARROW_LIBHDFS_DIR", raising=False)
    with pytest.raises(OSError, match="Unable to load lib") as caught:
        open_store("hdfs://127.0.0.1:1/x")
    assert "dlopen" not in str(caught.value) and "HADOOP_HOME" in str(caught.value)
    assert caught.value.filename == "hdfs://127.0.0.1:1/x"


@pytest.fixture
def there(s3: S3Server) -> Iterator[S3Server]:
    yield s3
    s3.refused = 0


@pytest.mark.exhaustive
def test_a_bucket_that_is_not_there_is_told_in_one_line(there: S3Server) -> None:
    store = open_store(there.url("x").replace("queue-archive", "another-bucket"))
    with pytest.raises(FileNotFoundError, match="there is no another-bucket"):
        store.check()
    with pytest.raises(OSError, match="NO_SUCH_BUCKET") as caught:
        store.write("x", [b"x"])
    assert "\n" not in str(caught.value.strerror)
    assert caught.value.filename == "s3://another-bucket/x/x"


@pytest.mark.exhaustive
def test_an_object_is_opened_once_and_each_range_is_one_request(there: S3Server) -> None:
    store = open_store(there.url("ranges"))
    store.write("x", [bytes(99)])
    there.requests.clear()
    store.read("x", 0, 9)
    store.read("x", 50, 99)
    store.read("x", 99, 100)
    name = "/queue-archive/ranges/x"
    assert there.requests == [f"HEAD {name}", f"GET {name}", f"GET {name}"]


@pytest.mark.exhaustive
def test_a_server_that_refuses_for_a_moment_is_asked_again(there: S3Server) -> None:
    store = open_store(there.url("again"))
    there.refused = 1
    store.write("x", [b"abc"])
    there.refused = 1
    assert store.read("x", 0, 3) == b"abc"


@pytest.mark.exhaustive
def test_a_server_without_tls_names_the_option_that_says_so(there: S3Server) -> None:
    store = open_store(there.url("x").replace("&scheme=http", ""))
    with pytest.raises(OSError, match=r"wrong version number; .* scheme=http to the URL"):
        store.check()


@pytest.mark.exhaustive
def test_a_server_that_is_away_is_an_error_that_says_so() -> None:
    store = open_store(
        "s3://queue-archive/x?endpoint_override=127.0.0.1:1&scheme=http&region=us-east-1"
    )
    with pytest.raises(OSError, match="NETWORK_CONNECTION") as caught:
        store.check()
    assert caught.value.errno == errno.EIO
    assert "\n" not in str(caught.value.strerror)
