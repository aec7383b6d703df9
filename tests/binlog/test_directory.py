"""What the log asks of a directory: the same of the real one and of the simulated one; and the
locks, against real processes and the real beanstalkd.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from beanstalk_twisted.binlog.directory import (
    DELETED,
    IN_PLACE,
    JOINED_BYTES,
    LOCKS,
    Directory,
    File,
    RealDirectory,
    advice_on,
)
from beanstalk_twisted.binlog.errors import BinlogError, CannotUse, LockHeld
from beanstalk_twisted.rules.workqueue import WorkQueue
from beanstalk_twisted.storage.clock import LogClock
from beanstalk_twisted.storage.opening import begin, load
from beanstalk_twisted.testing.memory_server import SimulatedDirectory
from tests.binlog.memory import MemoryDirectory, fails_at
from tests.binlog.scribe import DEFAULT_TUBE, Scribe, put
from tests.server_process import real_beanstalkd
from tests.storage.test_opening import Quiet, no_facts

LIMIT_SECONDS = 20
NOBODY = 65_534


@pytest.fixture(params=["real", "double's", "faulty"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    if request.param == "real":
        return RealDirectory(str(tmp_path))
    return MemoryDirectory() if request.param == "faulty" else SimulatedDirectory()


def content(directory: Directory, name: str) -> bytes:
    return bytes(directory.read(name))


# The contract.


def test_what_is_written_can_be_read(directory: Directory) -> None:
    file = directory.create("a")
    assert content(directory, "a") == b""
    file.write_at(0, [b"one", b"", b"two"])
    file.write_at(6, [b"three"])
    file.close()
    assert content(directory, "a") == b"onetwothree"
    assert directory.size("a") == 11


def test_bytes_are_written_anywhere_and_a_gap_reads_as_zeros(directory: Directory) -> None:
    file = directory.create("a")
    file.write_at(4, [b"wx"])
    file.write_at(5, [b"y"])
    assert content(directory, "a") == b"\0\0\0\0wy"


def test_allocated_space_reads_as_zeros_and_is_written_into(directory: Directory) -> None:
    file = directory.create("a")
    file.allocate(10)
    file.write_at(2, [b"x"])
    assert content(directory, "a") == b"\0\0x" + bytes(7)
    file.allocate(4)
    assert len(content(directory, "a")) == 10, "it never makes a file shorter"


@pytest.mark.parametrize(
    ("size", "expected"), [(0, b""), (2, b"ab"), (4, b"abcd"), (6, b"abcd\0\0")]
)
def test_a_file_is_cut_or_extended_to_a_size(
    directory: Directory, size: int, expected: bytes
) -> None:
    file = directory.create("a")
    file.write_at(0, [b"abcd"])
    file.truncate(size)
    file.sync()
    assert content(directory, "a") == expected


def test_a_file_that_is_no_longer_written_can_be_cut(directory: Directory) -> None:
    file = directory.create("a")
    file.write_at(0, [b"abcd"])
    file.close()
    directory.cut("a", 3)
    assert content(directory, "a") == b"abc"


def test_a_name_is_given_only_once(directory: Directory) -> None:
    directory.create("a").write_at(0, [b"kept"])
    with pytest.raises(FileExistsError):
        directory.create("a")
    assert content(directory, "a") == b"kept"


def test_names_are_sorted_and_only_those_of_files(directory: Directory, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        directory.create(name)
    (tmp_path / "folder").mkdir()
    assert directory.names() == ["a", "b", "c"]


def test_a_renamed_file_keeps_its_bytes_and_its_writer(directory: Directory) -> None:
    file = directory.create("old")
    file.write_at(0, [b"one"])
    directory.rename("old", "new")
    file.write_at(3, [b"two"])
    assert directory.names() == ["new"]
    assert content(directory, "new") == b"onetwo"


def test_a_renamed_file_replaces_one_of_that_name(directory: Directory) -> None:
    directory.create("a").write_at(0, [b"a"])
    directory.create("b").write_at(0, [b"b"])
    directory.rename("a", "b")
    assert directory.names() == ["b"]
    assert content(directory, "b") == b"a"


@pytest.mark.parametrize(
    "action",
    [
        lambda d: d.read("none"),
        lambda d: d.size("none"),
        lambda d: d.remove("none"),
        lambda d: d.rename("none", "other"),
        lambda d: d.cut("none", 0),
    ],
    ids=["read", "size", "remove", "rename", "cut"],
)
def test_a_file_that_is_not_there_is_an_error(
    directory: Directory, action: Callable[[Directory], object]
) -> None:
    with pytest.raises(FileNotFoundError):
        action(directory)


def test_a_file_of_which_most_is_passed_over_reads_as_any_other(directory: Directory) -> None:
    for name in ("one", "two"):
        directory.create(name).write_at(0, [bytes(9000), name.encode()])
    for names in (["one"], ["two", "nowhere"], []):
        directory.expect_gaps(names)
        assert content(directory, "one") == bytes(9000) + b"one"
        assert bytes(directory.read("two", 8999, 10_000)) == b"\0two"


def test_what_was_read_stays_as_it_was_when_the_file_is_removed(directory: Directory) -> None:
    directory.create("a").write_at(0, [b"abc"])
    seen = directory.read("a")
    directory.remove("a")
    assert (bytes(seen), directory.names()) == (b"abc", [])


@pytest.mark.parametrize("start", [0, 1, 4095, 4096, 4097, 9999, 10_000])
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_part_of_a_file_is_read_without_the_rest(
    directory: Directory, start: int, size: int
) -> None:
    content = bytes(range(250)) * 40
    directory.create("a").write_at(0, [content])
    assert bytes(directory.read("a", start, start + size)) == content[start : start + size]


@pytest.mark.parametrize("more", [0, 1])
def test_few_and_many_bytes_are_written_alike(directory: Directory, more: int) -> None:
    chunks = [b"a" * (JOINED_BYTES - 5), b"", b"bcdef" + b"g" * more]
    file = directory.create("a")
    file.write_at(3, chunks)
    assert bytes(directory.read("a")) == bytes(3) + b"".join(chunks)


def test_syncs_and_advice_need_no_file_to_have_changed(directory: Directory) -> None:
    file = directory.create("a")
    file.sync()
    file.sync()
    directory.sync()
    directory.forget_cached("a")
    directory.close()
    directory.close()


def kept_in_quarantine(directory: Directory, path: str) -> bytes:
    if isinstance(directory, SimulatedDirectory):
        return directory.quarantined[os.path.basename(path)]
    return Path(path).read_bytes()


def test_it_says_how_much_is_free(directory: Directory) -> None:
    space = directory.disk_space()
    assert 0 < space.free_bytes <= space.size_bytes


def test_a_copy_in_quarantine_is_no_file_of_the_log(directory: Directory) -> None:
    path = directory.quarantine("seg-9.torn", memoryview(b"cut off"))
    assert path == f"{directory.path}/quarantine/seg-9.torn"
    assert kept_in_quarantine(directory, path) == b"cut off"
    assert directory.names() == []


def test_an_older_copy_in_quarantine_is_never_overwritten(directory: Directory) -> None:
    path = directory.quarantine("seg-9.torn", b"old")
    directory.quarantine("seg-9.torn", b"newer")
    assert kept_in_quarantine(directory, path) == b"old"


def test_a_copy_that_a_crash_cut_short_does_not_stand_for_a_whole_one(tmp_path: Path) -> None:
    directory = RealDirectory(str(tmp_path))
    (tmp_path / "quarantine").mkdir()
    (tmp_path / "quarantine" / "seg-9.torn").write_bytes(b"cut")
    path = directory.quarantine("seg-9.torn", b"cut off")
    assert Path(path).read_bytes() == b"cut off"
    assert (tmp_path / "quarantine" / "seg-9.torn").read_bytes() == b"cut"


# The simulated one: what it loses.


def written_unsynced() -> MemoryDirectory:
    """One file that is synced with its name, and changes of both that are not."""
    directory = MemoryDirectory()
    file = directory.create("a")
    file.write_at(0, [b"synced"])
    file.sync()
    directory.sync()
    file.write_at(6, [b"-more-"])
    file.truncate(20)
    directory.create("b")
    directory.rename("a", "c")
    return directory


WHOLE = b"synced-more-".ljust(20, b"\0")


@pytest.mark.parametrize(
    ("keeps_names", "kept", "expected"),
    [
        (False, lambda size: [], {"a": b"synced"}),
        (True, lambda size: [], {"b": b"", "c": b"synced"}),
        (False, lambda size: [(0, size)], {"a": WHOLE}),
        (True, lambda size: [(0, size)], {"b": b"", "c": WHOLE}),
        (False, lambda size: [(1, 3)] if size else [], {"a": b"synced\0mo"}),
    ],
    ids=["nothing", "names", "bytes", "all", "a torn write"],
)
def test_a_power_loss_may_keep_any_of_what_was_not_synced(
    keeps_names: bool,
    kept: Callable[[int], list[tuple[int, int]]],
    expected: dict[str, bytes],
) -> None:
    after = written_unsynced().after_power_loss(lambda: keeps_names, kept)
    assert {name: content(after, name) for name in after.names()} == expected


def after_a_failed_sync() -> tuple[MemoryDirectory, File]:
    """A file that another sync seems to have made durable."""
    directory = MemoryDirectory()
    file = directory.create("a")
    file.write_at(0, [b"one"])
    directory.sync()
    directory.fault = fails_at(1, kind="sync")
    with pytest.raises(OSError):
        file.sync()
    file.write_at(3, [b"two"])
    file.sync()
    return directory, file


def test_a_sync_after_one_that_failed_proves_nothing_about_what_came_before_it() -> None:
    directory, file = after_a_failed_sync()
    assert content(directory, "a") == b"onetwo"
    assert content(directory.after_power_loss(), "a") == b"\0\0\0two"
    file.sync()
    assert content(directory.after_power_loss(), "a") == b"\0\0\0two"
    whole = directory.after_power_loss(keep_bytes=lambda size: [(0, size)])
    assert content(whole, "a") == b"onetwo"


def test_whoever_distrusts_the_cache_sees_what_the_disk_has_after_a_failed_sync() -> None:
    directory, file = after_a_failed_sync()
    file.write_at(6, [b"three"])
    directory.forget_cached("a")
    assert content(directory, "a") == b"\0\0\0twothree"
    assert content(directory.after_power_loss(), "a") == b"\0\0\0two"


def test_a_write_that_fails_may_have_written_some_of_it() -> None:
    directory = MemoryDirectory()
    file = directory.create("a")
    directory.fault = fails_at(1, kind="write")
    with pytest.raises(OSError):
        file.write_at(0, [b"more", b"less"])
    assert content(directory, "a") == b"more"


# The real one: making it.


def test_a_directory_is_made_if_only_it_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    RealDirectory(str(path)).make()
    assert path.stat().st_mode & 0o777 == 0o700
    RealDirectory(str(path)).make()


def test_a_directory_without_a_parent_is_not_made(tmp_path: Path) -> None:
    parent = tmp_path / "no"
    with pytest.raises(CannotUse) as caught:
        RealDirectory(str(parent / "log")).make()
    assert str(caught.value) == (
        f"binlog directory {parent}/log: there is no {parent} to make it in; nothing was lost. "
        f"Make that (mkdir -p {parent}), or name another one; then start again."
    )
    assert caught.value.exit_code == 73
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_leads_nowhere_is_not_blamed_on_its_parent(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "gone" / "log")
    with pytest.raises(CannotUse, match="log: No such file or directory; nothing was lost"):
        RealDirectory(str(tmp_path / "log")).make()


def test_a_file_in_its_place_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"mine")
    with pytest.raises(CannotUse, match="Not a directory"):
        RealDirectory(str(path)).make()
    assert path.read_bytes() == b"mine"


def test_a_directory_that_may_not_be_written_is_not_used() -> None:
    with TemporaryDirectory() as path:
        os.chmod(path, 0o500)
        assert exit_code_without_rights(lambda: RealDirectory(path).make()) == 73


def exit_code_without_rights(action: Callable[[], object]) -> int:
    """How a process ends that does this and may not do what root may."""
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            action()
        except BinlogError as problem:
            os._exit(problem.exit_code)
        except SystemExit as end:
            os._exit(int(end.code or 0))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_lock_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(CannotUse, match="cannot be locked") as caught:
        RealDirectory(str(tmp_path)).lock("me")
    assert caught.value.exit_code == 73


# The locks.

HOLDER = """
import sys
from beanstalk_twisted.binlog.directory import RealDirectory
directory = RealDirectory(sys.argv[1])
try:
    directory.lock("4711 elsewhere yesterday\\n")
except Exception as problem:
    print(type(problem).__name__, problem.exit_code, problem, flush=True)
else:
    print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that locks the directory, or tries to, and stays."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_we_refuse_others_as_long_as_we_live(tmp_path: Path) -> None:
    mine = RealDirectory(str(tmp_path))
    mine.lock("me and my host\n")
    with holder(tmp_path) as (_, said):
        assert said.startswith("LockHeld 10 ")
        assert "me and my host" in said
    mine.close()
    with holder(tmp_path) as (_, said):
        assert said == "locked\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_second_server_is_told_who_has_the_lock_until_that_ends(
    tmp_path: Path, how: signal.Signals
) -> None:
    with holder(tmp_path) as (process, said):
        assert said == "locked\n"
        mine = RealDirectory(str(tmp_path))
        with pytest.raises(LockHeld, match="4711 elsewhere yesterday; nothing") as caught:
            mine.lock("me")
        assert caught.value.exit_code == 10
        mine.close()
        process.send_signal(how)
        process.wait(LIMIT_SECONDS)
        mine.lock("me")
        mine.close()
    assert (tmp_path / "LOCK").read_text() == "me", "the longer text of another is gone"


# The real beanstalkd.


def test_our_lock_survives_the_whole_of_our_start(tmp_path: Path) -> None:
    """Opening and closing ``lock`` a second time anywhere in the process would drop it."""
    mine = RealDirectory(str(tmp_path))
    mine.make()
    mine.lock("me")
    scribe = Scribe(mine)
    scribe.write(DEFAULT_TUBE, put(1, b"x" * 9000))
    scribe.write(put(2))
    scribe.write(put(3), sync=False)
    newest = max(tmp_path.glob("*.tql"))
    (tmp_path / "spare.00000000000000000009.tmp").write_bytes(b"half")
    with newest.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"garbage!")
    queue = WorkQueue(no_facts, (), 65_535)
    found = load(mine, queue, LogClock(), Quiet())
    opened = begin(mine, queue, LogClock(), 8192, found)
    assert len(queue.state.jobs) == 3
    assert any("torn" in note for note in opened.notes), "all of a start has happened"
    running = [real_beanstalkd(), "-b", str(tmp_path), "-l", f"unix:{tmp_path}/c.sock"]
    ended = subprocess.run(running, capture_output=True, timeout=LIMIT_SECONDS)
    assert ended.returncode == 10
    opened.writer.close()
    mine.close()


@contextmanager
def running_beanstalkd(path: Path) -> Iterator[None]:
    """A beanstalkd that has this directory: it answers, which it does only then."""
    command = [real_beanstalkd(), "-b", str(path), "-l", f"unix:{path}/c.sock"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + LIMIT_SECONDS
            while not answers(f"{path}/c.sock"):
                assert process.poll() is None, "it has ended"
                assert time.monotonic() < until
                time.sleep(0.01)
            yield
        finally:
            process.kill()


def answers(path: str) -> bool:
    """Whether a server on this socket answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(path)
            connection.sendall(b"list-tubes\r\n")
            return connection.recv(100).startswith(b"OK")
        except OSError:
            return False


def test_a_running_beanstalkd_is_seen_without_a_trace_and_keeps_its_directory(
    tmp_path: Path,
) -> None:
    mine = RealDirectory(str(tmp_path))
    mine.refuse_if_beanstalkd_runs()
    assert list(tmp_path.iterdir()) == []
    with running_beanstalkd(tmp_path):
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(LockHeld, match="locked by a C beanstalkd; nothing"):
            mine.refuse_if_beanstalkd_runs()
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        with pytest.raises(LockHeld, match="locked by a C beanstalkd; nothing") as caught:
            mine.lock("me")
        assert caught.value.exit_code == 10
        mine.close()
    mine.refuse_if_beanstalkd_runs()
    mine.lock("me")
    mine.close()


def test_looking_for_a_running_beanstalkd_only_asks_so_it_needs_no_right_to_write() -> None:
    with TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        (Path(path) / "lock").touch(0o444)
        mine = RealDirectory(path)
        assert exit_code_without_rights(mine.refuse_if_beanstalkd_runs) == 0


# Files that are no longer where they were.


def test_a_file_is_in_place_under_the_name_that_it_has_now(directory: Directory) -> None:
    file = directory.create("a")
    assert directory.displaced("a", file) == IN_PLACE
    directory.rename("a", "b")
    assert directory.displaced("b", file) == IN_PLACE
    assert directory.displaced("a", file) == f"is now {directory.path}/b"
    assert directory.displaced("b", directory.open("b")) == IN_PLACE


def test_a_file_whose_name_is_removed_or_another_s_was_deleted(directory: Directory) -> None:
    file = directory.create("a")
    directory.remove("a")
    assert directory.displaced("a", file) == DELETED
    other = directory.create("a")
    assert directory.displaced("a", file) == DELETED
    assert directory.displaced("a", other) == IN_PLACE


def take_away(directory: Directory) -> None:
    if isinstance(directory, MemoryDirectory):
        directory.is_away = True
    elif isinstance(directory, SimulatedDirectory):
        pytest.skip("nobody takes it away")
    else:
        os.rename(directory.path, f"{directory.path} (elsewhere)")


@pytest.mark.parametrize("has_another_in_its_place", [False, True])
def test_a_file_goes_with_its_directory(
    directory: Directory, has_another_in_its_place: bool
) -> None:
    file = directory.create("a")
    take_away(directory)
    if has_another_in_its_place and isinstance(directory, RealDirectory):
        os.mkdir(directory.path)
        directory.create("a").close()
    said = directory.displaced("a", file)
    assert said.startswith("is now ") and said.endswith("(elsewhere)/a")


def test_another_way_to_the_same_file_is_its_place(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    directory = RealDirectory(str(tmp_path / "there"))
    file = directory.create("a")
    os.rename(tmp_path / "there", tmp_path / "elsewhere")
    assert directory.displaced("a", file) != IN_PLACE
    (tmp_path / "there").symlink_to(tmp_path / "elsewhere")
    assert directory.displaced("a", file) == IN_PLACE


def test_a_path_that_nobody_may_look_at_says_nothing_about_the_file() -> None:
    with TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        os.mkdir(f"{path}/outer", 0o777)
        os.chmod(f"{path}/outer", 0o777)

        def look() -> None:
            os.mkdir(f"{path}/outer/log")
            os.mkdir(f"{path}/outer/log/inner")
            directory = RealDirectory(f"{path}/outer/log/inner")
            file = directory.create("a")
            os.chmod(f"{path}/outer/log", 0)
            said = directory.displaced("a", file)
            os.chmod(f"{path}/outer/log", 0o777)
            os.chmod(f"{path}/outer/log/inner", 0o777)
            raise SystemExit(0 if said == IN_PLACE else 1)

        assert exit_code_without_rights(look) == 0


# Symbolic links, and others who may write.


@pytest.mark.parametrize("name", ["LOCK", "lock"])
def test_a_lock_is_not_taken_through_a_symbolic_link(tmp_path: Path, name: str) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    log = tmp_path / "log"
    log.mkdir()
    (log / name).symlink_to(target)
    directory = RealDirectory(str(log))
    with pytest.raises(CannotUse, match=f"cannot be locked: {log}/{name}: ") as caught:
        directory.lock("me")
    directory.close()
    assert caught.value.exit_code == 73
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "write",
    [
        lambda d: d.create("link"),
        lambda d: d.open("link"),
        lambda d: d.cut("link", 0),
        lambda d: d.quarantine("x", b"cut off"),
    ],
    ids=["create", "open", "cut", "quarantine"],
)
def test_nothing_is_written_through_a_symbolic_link(
    tmp_path: Path, write: Callable[[RealDirectory], object]
) -> None:
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    (tmp_path / "folder").mkdir()
    log = tmp_path / "log"
    log.mkdir()
    (log / "link").symlink_to(target)
    (log / "quarantine").symlink_to(tmp_path / "folder")
    with pytest.raises(OSError):
        write(RealDirectory(str(log)))
    assert target.read_bytes() == b"precious"
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "is_open"),
    [(0o700, False), (0o755, False), (0o770, True), (0o707, True), (0o720, True), (0o702, True)],
)
def test_others_who_may_write_in_the_directory_are_seen(
    tmp_path: Path, mode: int, is_open: bool
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    log.chmod(mode)
    assert RealDirectory(str(log)).is_open_to_others() is is_open


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOTDIR, "Name a directory with --binlog, not a file"),
        (errno.EROFS, "Mount its file system for writing, or name another directory"),
        (errno.ENOENT, "It is a symbolic link that leads nowhere: run mkdir -p {path}"),
        (errno.EACCES, "Run chown -R {uid} {path}, or start as its owner"),
        (errno.EACCES, "Run chmod u+rwx {path}"),
        (errno.EACCES, "Run mkdir {path}/new and chown {uid} {path}/new"),
    ],
)
def test_what_to_do_about_a_directory_follows_from_what_is_wrong(
    tmp_path: Path, number: int, advice: str
) -> None:
    path = tmp_path / "new" if "mkdir {path}/new" in advice else tmp_path
    tmp_path.chmod(0o500 if "chmod" in advice else 0o700)
    said = advice_on(str(path), OSError(number, "wrong"))
    assert said == advice.format(path=tmp_path, uid=os.geteuid())


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_was_deleted_or_replaced_is_noticed(tmp_path: Path, name: str) -> None:
    directory = RealDirectory(str(tmp_path))
    directory.lock("me")
    assert directory.lost_lock() == ""
    (tmp_path / name).unlink()
    assert directory.lost_lock() == name
    (tmp_path / name).touch()
    assert directory.lost_lock() == name
    directory.close()


def test_a_file_that_is_cut_while_it_is_read_is_read_as_it_then_is(tmp_path: Path) -> None:
    directory = RealDirectory(str(tmp_path))
    directory.create("a").write_at(0, [bytes(9000)])
    cutting = subprocess.Popen([
        sys.executable, "-c",
        "import os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "while True: os.ftruncate(fd, 65536); os.ftruncate(fd, 6000)",
        tmp_path / "a",
    ])  # fmt: skip
    try:
        read = {len(directory.read("a")) for _ in range(8_000)}
    finally:
        cutting.kill()
        cutting.wait()
    assert read <= {6000, 9000, 65_536}
