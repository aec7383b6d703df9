"""Facts are those of the machine, and none of them is waited for without limit; and ``beanstalk
doctor`` as it is called.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.binlog.segments.format import segment_name
from beanstalk_twisted.daemon.removed_options import removed_among
from binlog_tools.doctor import checks, facts
from binlog_tools.doctor.command import CODES
from binlog_tools.doctor.facts import configured
from binlog_tools.queue.cli.commands import cli

ETC, LIB = "etc/systemd/system", "usr/lib/systemd/system"
UNIT, DROP_IN = f"{ETC}/bs.service", f"{ETC}/bs.service.d"
DEFAULT = "etc/default/beanstalk-twisted"
RUN = "ExecStart=/opt/bs/bin/beanstalk-twisted --binlog %S/bs"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({UNIT: f"[Service]\n{RUN} --hub off --v1-ttr=9\n"}, {UNIT: ["--hub", "--v1-ttr"]}),
        ({UNIT: f"{RUN} \\\n  -p 1 \\\n# no: --hub\n  --v1-ttr 9"}, {UNIT: ["--v1-ttr"]}),
        ({UNIT: f"#{RUN} --hub off\n;{RUN} --hub off\n{RUN}"}, {}),
        ({UNIT: "ExecStart=twistd -n beanstalk --hub=off"}, {UNIT: ["--hub"]}),
        ({UNIT: "ExecStart=@-python3 x -m beanstalk_twisted --hub=off"}, {UNIT: ["--hub"]}),
        ({UNIT: "ExecStart=sh -c 'exec beanstalk-twisted --hub=off'"}, {UNIT: ["--hub"]}),
        ({UNIT: "ExecStart=/usr/bin/other --hub off"}, {}),
        ({UNIT: f'Environment="A=--hub off"\n{RUN} $A'}, {UNIT: ["--hub"]}),
        ({f"{LIB}/bs@.service": RUN + " --hub=1"}, {f"{LIB}/bs@.service": ["--hub"]}),
        # What hides, and takes back.
        ({UNIT: RUN, f"{LIB}/bs.service": RUN + " --hub=1"}, {}),
        ({UNIT: RUN + " --hub=1", f"{DROP_IN}/a.conf": f"ExecStart=\n{RUN}"}, {}),
        ({UNIT: RUN, f"{DROP_IN}/a.conf": f"ExecStart=\n{RUN} --hub=1",
          f"{DROP_IN}/b.conf": f"ExecStart=\n{RUN}"}, {}),
        ({UNIT: RUN, f"{DROP_IN}/a.conf": f"ExecStart=\n{RUN} --hub 1"},
         {f"{DROP_IN}/a.conf": ["--hub"]}),
        ({UNIT: RUN, f"{LIB}/bs.service.d/a.conf": f"ExecStart=\n{RUN} --hub 1"},
         {f"{LIB}/bs.service.d/a.conf": ["--hub"]}),
        ({f"{LIB}/bs@.service": RUN, f"{ETC}/bs@1.service.d/a.conf": "Environment=A=--hub"},
         {f"{ETC}/bs@1.service.d/a.conf": ["--hub"]}),
        # Files of variables.
        ({DEFAULT: "OPTIONS=--hub off --v1-ttr=9\n"}, {DEFAULT: ["--hub", "--v1-ttr"]}),
        ({DEFAULT: "# OPTIONS=--hub off\nOPTIONS=\n"}, {}),
        ({DEFAULT: "OPTIONS=--hub off\nOPTIONS='-p 1'\n"}, {}),
        ({UNIT: f"EnvironmentFile=-/{DEFAULT}\n{RUN}", DEFAULT: 'O="--hub off"'},
         {DEFAULT: ["--hub"]}),
        ({UNIT: f"EnvironmentFile=/etc/bs\n{RUN}", "etc/bs": "O=--hub"}, {"etc/bs": ["--hub"]}),
        ({UNIT: "EnvironmentFile=/etc/bs\nExecStart=other", "etc/bs": "O=--hub"}, {}),
        ({UNIT: f"EnvironmentFile=-/etc/none\n{RUN}"}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_removed_options_are_found_where_they_are(
    files: dict[str, str], found: dict[str, list[str]], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    findings = list(checks.services(configured(tmp_path)))
    expected = [
        f"{tmp_path / name}: {what}"
        for name, words in found.items()
        for what in removed_among(words)
    ]
    assert sorted(each.what for each in findings) == sorted(expected)
    assert {each.level for each in findings} <= {"problem"} and all(e.advice for e in findings)
    assert sum(map(len, found.values())) == len(findings)


@pytest.mark.exhaustive
def test_the_server_is_asked_what_it_makes_of_its_options(tmp_path: Path) -> None:
    told = facts.server_options(["-b", str(tmp_path), "-f", "50", "--max-job-size", "9999999999"])
    assert (told.problem, told.binlog, told.is_always) == ("", str(tmp_path), False)
    [warning] = told.warnings
    assert "--max-job-size 9999999999 is out of range" in warning
    assert told.segment_bytes == 64 << 20 and told.fsync_timeout_s == 60


@pytest.mark.exhaustive
def test_wrong_options_are_told_in_the_servers_words() -> None:
    told = facts.server_options(["--no-such-option"])
    assert told.problem.startswith("beanstalk-twisted: option --no-such-option")


HOLDS_LOCK = """
import fcntl
file = open("lock", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
input()
"""


def test_a_log_whose_lock_another_process_has_has_a_server(tmp_path: Path) -> None:
    assert not facts.has_server(str(tmp_path))
    (tmp_path / "lock").touch()
    assert not facts.has_server(str(tmp_path))
    command = [sys.executable, "-c", HOLDS_LOCK]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert facts.has_server(str(tmp_path))
        process.communicate(b"\n")
    assert not facts.has_server(str(tmp_path))


def test_a_directory_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / segment_name(7)).write_bytes(bytes(5000))
    (tmp_path / "LOCK").write_bytes(bytes(50))
    os.utime(tmp_path / segment_name(7), (1e9, 1e9))
    tmp_path.chmod(0o720)
    found = facts.folder(str(tmp_path))
    assert (found.path, found.problem, found.is_open_to_others) == (str(tmp_path), "", True)
    assert (found.log_bytes, found.newest_s) == (5000, 1e9)
    assert found.free_bytes > 0 and found.filesystem
    assert len(list(tmp_path.iterdir())) == 2


def test_of_one_that_is_not_there_its_parent_is_looked_at(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    found = facts.folder(str(tmp_path / "bs"))
    # It is not the log's own.
    assert (found.path, found.problem, found.is_open_to_others) == (str(tmp_path), "", False)
    missing = facts.folder(str(tmp_path / "no" / "bs"))
    assert (missing.path, missing.problem) == (str(tmp_path / "no"), "No such file or directory")


MOUNTS = """\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:5 / /var rw shared:2 - xfs /dev/sdb1 rw
23 22 0:6 / /var/lib/with\\040blank rw - tmpfs none rw
24 22 0:7 / /var/lib/over rw - ext4 /dev/sdc1 rw
25 22 0:8 / /var/lib/over rw - nfs4 host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"), ("/variety", "ext4"), ("/var/lib", "xfs"), ("/var/lib/with blank", "tmpfs"),
        ("/var/lib/over/bs", "nfs4"),
    ],
)  # fmt: skip
def test_the_file_system_is_that_of_the_last_mount(path: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert facts.filesystem(path, tmp_path / "mountinfo") == kind
    assert facts.filesystem(path, tmp_path / "none") == ""


def test_syncs_are_measured_and_leave_nothing(tmp_path: Path) -> None:
    found = facts.measured_syncs(str(tmp_path))
    assert found.is_ended and 0 < found.number <= facts.SYNCS
    assert 0 <= found.median_us <= found.slowest_us
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    goes_on = threading.Event()
    synced = []

    def sync(fd: int) -> None:
        synced.append(fd)
        if len(synced) == 3:
            goes_on.wait()

    found = facts.measured_syncs(str(tmp_path), hang_s=0.2, sync=sync)
    goes_on.set()
    assert not found.is_ended and found.number <= 2


def test_the_memory_is_the_least_of_all_groups(tmp_path: Path) -> None:
    own, groups = tmp_path / "own", tmp_path / "cgroup"
    inner = groups / "system.slice" / "bs.service"
    inner.mkdir(parents=True)
    own.write_text("0::/system.slice/bs.service\n")
    all_of_it = facts.memory_limit(tmp_path / "none", own)
    (inner / "memory.max").write_text("max\n")
    assert facts.memory_limit(groups, own) == all_of_it
    (groups / "system.slice" / "memory.max").write_text("300000000\n")
    assert facts.memory_limit(groups, own) == 300_000_000
    (inner / "memory.max").write_text("200000000\n")
    assert facts.memory_limit(groups, own) == 200_000_000
    (groups / "memory").mkdir()
    (groups / "memory" / "memory.limit_in_bytes").write_text("100000000\n")
    assert facts.memory_limit(groups, own) == 100_000_000
    assert facts.memory_limit(groups, tmp_path / "none") == 100_000_000


def test_the_kernels_numbers(tmp_path: Path) -> None:
    assert facts.somaxconn(tmp_path / "none") == 0
    (tmp_path / "somaxconn").write_text("4096\n")
    assert facts.somaxconn(tmp_path / "somaxconn") == 4096
    assert facts.descriptors()[0] <= max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 20)
    assert facts.clock_is_kept() in (True, False, None)
    assert facts.twisted_version()


OF_EVERY_MACHINE = [
    "python", "twisted", "options", "ports", "user", "descriptors", "backlog", "memory",
]  # fmt: skip
OF_FILES = ["access file", "tubes file", "tls files"]
OF_A_LOG = ["clock", "directory", "file system", "space", "disk"]


def doctor(*words: object) -> Result:
    return CliRunner().invoke(cli, ["doctor", *map(str, words)])


@pytest.mark.exhaustive
def test_all_checks_are_made_and_the_worst_is_the_exit_code(tmp_path: Path) -> None:
    # Only root may become somebody else.
    user = () if os.getuid() else ("--user", "nobody")
    result = doctor("--json", "--", "--binlog", tmp_path / "bs", "--port", "0", *user)
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["check"] for each in found] == [*OF_EVERY_MACHINE, *OF_A_LOG]
    assert all(each.keys() == {"v", "check", "level", "what", "advice"} for each in found)
    assert result.exit_code == max(CODES[each["level"]] for each in found)
    # Nothing was made.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
def test_in_a_pipe_a_finding_is_a_line(tmp_path: Path) -> None:
    result = doctor("--", "-b", tmp_path)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert {len(row) for row in rows} == {4}
    assert ["options", "ok", f"binlog {tmp_path}", "-"] in rows


@pytest.mark.exhaustive
def test_what_keeps_a_server_from_starting_is_a_problem(tmp_path: Path) -> None:
    for words in (["--port", "99999999"], ["--binlog", tmp_path / "no" / "bs"]):
        result = doctor("--", *words)
        assert result.exit_code == 4
        assert "\tproblem\t" in result.stdout


def test_files_and_ports_that_refuse_a_start_are_problems(tmp_path: Path) -> None:
    (tmp_path / "tubes.toml").write_text("[mail]\nmax-fun = 1\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = doctor(
            "--json", "--", "--binlog", tmp_path / "bs", "--access", tmp_path / "none.toml",
            "--tubes", tmp_path / "tubes.toml", "--port", port,
            "--http", f"tls:0:{tmp_path}/none",
        )  # fmt: skip
    found = {each["check"]: each for each in map(json.loads, result.stdout.splitlines())}
    problems = [name for name in (*OF_FILES, "ports") if found[name]["level"] == "problem"]
    assert problems == [*OF_FILES, "ports"]
    assert "none.toml: it cannot be read" in found["access file"]["what"]
    assert "line 2" in found["tubes file"]["what"]
    assert f"{tmp_path}/none: it cannot be read" in found["tls files"]["what"]
    assert f"cannot listen on 127.0.0.1:{port}" in found["ports"]["what"]
    assert result.exit_code == 4


@pytest.mark.exhaustive
def test_without_a_log_no_disk_is_measured() -> None:
    result = doctor("--", "--port", "0")
    assert result.exit_code == 1
    assert "jobs are in memory only" in result.stdout
    assert "\ndisk" not in result.stdout


def test_removed_options_are_a_problem_each_in_the_words_of_a_start() -> None:
    result = doctor("--json", "--", "--port", "0", "--hub", "off", "--v1-ttr=9")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    problems = [each for each in found if each["check"] == "options"]
    assert [each["what"] for each in problems] == removed_among(["--hub", "--v1-ttr"])
    assert {each["level"] for each in problems} == {"problem"} and result.exit_code == 4
