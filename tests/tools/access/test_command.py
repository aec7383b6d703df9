"""``beanstalk token`` and ``beanstalk access``, as they are called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beanstalk_twisted.access.rules import MAX_FILE_BYTES
from beanstalk_twisted.access.tokens import TokenHash
from binlog_tools.queue.cli.commands import cli


def call(*words: object, typed: str = "") -> Result:
    return CliRunner().invoke(cli, [*map(str, words)], input=typed)


def test_a_token_is_made_with_its_hash_and_each_time_another() -> None:
    made = [json.loads(call("token", "--json").stdout) for _ in range(2)]
    for each in made:
        assert TokenHash.parse(each["hash"]).matches(each["token"].encode())
    assert made[0]["token"] != made[1]["token"]


def test_a_token_from_stdin_is_hashed_and_not_shown() -> None:
    token = json.loads(call("token", "--json").stdout)["token"]
    result = call("token", "--hash", typed=f"{token}\n")
    label, kept = result.stdout.split()
    assert label == "hash" and TokenHash.parse(kept).matches(token.encode())
    assert token not in result.output


def test_what_is_no_token_has_no_hash_and_is_not_shown() -> None:
    result = call("token", "--hash", typed="my secret\n")
    assert result.exit_code == 2
    assert "it is no token: make one with beanstalk token" in result.stderr
    assert "secret" not in result.output


def test_a_token_goes_into_a_new_file_that_its_owner_alone_may_read(tmp_path: Path) -> None:
    path = tmp_path / "worker.token"
    before = os.umask(0)
    try:
        result = call("token", "-o", path)
    finally:
        os.umask(before)
    label, kept = result.stdout.split()
    token = path.read_text()
    assert token.endswith("\n") and token.strip() not in result.output
    assert label == "hash" and TokenHash.parse(kept).matches(token.strip().encode())
    assert path.stat().st_mode & 0o777 == 0o600
    assert "token" not in json.loads(call("token", "-o", tmp_path / "other", "--json").stdout)


@pytest.mark.parametrize("is_link", [False, True])
def test_what_is_there_is_not_written_over_by_a_token(tmp_path: Path, is_link: bool) -> None:
    path, target = tmp_path / "worker.token", tmp_path / "elsewhere"
    if is_link:
        path.symlink_to(target)
    else:
        path.write_text("before")
    result = call("token", "--output", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{path}: it is there already, and stays as it is" in result.stderr
    assert not target.exists() and (is_link or path.read_text() == "before")


def test_a_token_that_cannot_be_written_or_is_not_made_is_told(tmp_path: Path) -> None:
    nowhere = call("token", "-o", tmp_path / "none" / "token")
    assert nowhere.exit_code == 2 and "No such file or directory" in nowhere.stderr
    hashed = call("token", "--hash", "-o", tmp_path / "token", typed="x\n")
    assert hashed.exit_code == 2 and "with --hash no token is made" in hashed.stderr


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "access.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 0, "is right: 1 identity: worker-1"),
        (("--as", "worker-1", "put", "mail"), 0, 'has by put = "mail"'),
        (("--as", "worker-1", "reserve", "mail"), 1, "worker-1 may not: reserve of mail needs"),
        (("put", "mail"), 1, "anonymous may not: put of mail needs put; it has no right"),
        (("--as", "x", "put", "mail"), 2, "the file has no identity x; it has worker-1, anonym"),
        (("--as", "worker-1", "put", "mail.*"), 2, "mail.* is not the name of a tube"),
        (("--as", "worker-1", "put"), 2, "put is about a tube: say which behind it"),
    ],
)
def test_a_file_is_asked(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    path = file_of(tmp_path, '[identities.worker-1]\nuid = 1\nput = "mail"\n')
    result = call("access", "check", path, *words)
    assert result.exit_code == code
    assert said in result.output
    if code < 2:
        shown = json.loads(call("access", "check", "--json", path, *words).stdout)
        assert shown.get("may", True) is (code == 0)


def test_limits_are_shown_of_all_and_with_an_answer(tmp_path: Path) -> None:
    limits = 'limits = { bytes = "1 KiB", jobs = 5 }\n'
    path = file_of(tmp_path, f"[identities.it]\nuid = 1\nput = 'a'\n{limits}")
    asked, shown = ("access", "check", path, "--as", "it", "put", "a"), {"bytes": 1024, "jobs": 5}
    for words in (asked[:3], asked):
        assert "\nlimits of it: bytes 1024, jobs 5\n" in call(*words).stdout
    assert json.loads(call(*asked, "--json").stdout)["limits"] == shown
    assert json.loads(call(*asked[:3], "--json").stdout)["limits"] == {"it": shown}


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o600, ["nobody may do anything"]),
        ("[identities.it]\nuid = 1\n", 0o600, ["nobody may do anything"]),
        ("[anonymous]\nput = 'a'\n", 0o644, []),
        ("[identities.it]\nuid = 1\nput = 'a'\n", 0o620, ["Run chmod go-w"]),
        ("", 0o602, ["nobody may do anything", "Run chmod go-w"]),
    ],
)
def test_doubtful_rules_are_told(tmp_path: Path, text: str, mode: int, said: list[str]) -> None:
    path = file_of(tmp_path, text)
    path.chmod(mode)
    result = call("access", "check", path)
    lines = result.stderr.splitlines()
    assert result.exit_code == 0 and len(lines) == len(said)
    assert all(words in line for words, line in zip(said, lines, strict=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "it is no TOML"),
        ("a = 1", "there is no key a"),
        ("#" * (MAX_FILE_BYTES + 1), f"it has more than {MAX_FILE_BYTES} bytes"),
    ],
)
def test_a_file_that_is_wrong_says_why(tmp_path: Path, text: str, said: str) -> None:
    result = call("access", "check", file_of(tmp_path, text))
    assert result.exit_code == 2 and said in result.stderr


def test_a_file_that_is_not_there_or_no_text_says_so(tmp_path: Path) -> None:
    assert "No such file" in call("access", "check", tmp_path / "none").stderr
    (tmp_path / "raw").write_bytes(b"\xff")
    assert "it is not UTF-8" in call("access", "check", tmp_path / "raw").stderr
