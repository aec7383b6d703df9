"""The file of ``--access``: what it says, and what is wrong with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanstalk_twisted.access.rules import (
    ANONYMOUS,
    MAX_COUNT,
    MAX_ID,
    MAX_IDENTITIES,
    MAX_RATE,
    WAYS,
    AccessRules,
    BadAccessFile,
    Peer,
    parse_access,
)
from beanstalk_twisted.wire.rights import LOOK, PUT, RESERVE
from tests.server.access.meeting import HASH, OTHER_HASH

GOOD = f"""
open-metrics = true

[anonymous]
look = "public.*"

[identities.shop]
token = "{HASH}"
producer = ["mail.*", "orders"]

[identities.worker-1]
certificate = "CN=worker-1"
uid = [1000, 0]
gid = 50
listener = ["unix:/run/bs.sock", "127.0.0.1:11301", "tcp:11302"]
worker = "mail.*"
"""


def told(rules: AccessRules, **facts: object) -> str:
    return rules.identify(Peer(**facts)).name  # type: ignore[arg-type]


def test_a_file_says_who_is_who_and_may_do_what() -> None:
    rules = parse_access(GOOD)
    assert rules.has_open_metrics
    assert rules.anonymous.grant.rights_of(b"public.a") == LOOK
    assert rules.anonymous.grant.rights_of(b"mail.a") == 0
    assert rules.identify(Peer(), HASH).grant.rights_of(b"orders") == PUT
    assert rules.identify(Peer(), OTHER_HASH).name == ANONYMOUS
    assert rules.identities["worker-1"].grant.rights_of(b"mail.in") == RESERVE | LOOK
    for facts in (
        {"certificate": ["DNS:x", "CN=worker-1"]}, {"uid": 1000}, {"uid": 0}, {"uid": 7, "gid": 50},
        {"listeners": ["127.0.0.1:11302", "tcp:11302"]}, {"listeners": ["unix:/run/bs.sock"]},
    ):  # fmt: skip
        assert told(rules, **facts) == "worker-1"
    assert told(rules) == told(rules, uid=7, gid=0, listeners=["tcp:1"]) == ANONYMOUS


def test_an_empty_file_gives_nobody_anything() -> None:
    rules = parse_access("")
    assert not rules.identities and not rules.anonymous.grant.anywhere
    assert not rules.has_open_metrics


def test_a_token_tells_more_than_a_certificate_and_that_more_than_a_process_and_a_port() -> None:
    text = f"""
        [identities.t]\ntoken = "{HASH}"
        [identities.c]\ncertificate = "CN=c"
        [identities.u]\nuid = 1
        [identities.g]\ngid = 2
        [identities.l]\nlistener = "tcp:1"
    """
    rules = parse_access(text.replace("        ", ""))
    peer = Peer(["tcp:1"], 1, 2, ["CN=c"])
    assert rules.identify(peer, HASH).name == "t"
    assert rules.identify(peer).name == "c"
    assert rules.identify(peer._replace(certificate=[])).name == "u"
    assert rules.identify(peer._replace(certificate=[], uid=9)).name == "g"
    assert rules.identify(peer._replace(certificate=[], uid=9, gid=9)).name == "l"


A = "[identities.a]\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a = 1", "the file: there is no key a; keys are anonymous, identities, open-metrics"),
        ("open-metrics = 1", "open-metrics is true or false, not 1"),
        ("anonymous = 1", "anonymous is a table, written [anonymous], not int"),
        ("identities = 'a'", "identities is a table, written [identities], not str"),
        ("[anonymous]\nuid = 0", "[anonymous]: there is no key uid; keys are put, reserve"),
        ("[identities]\na = 1", "identities.a is a table, written [identities.a], not int"),
        (A + "put = 'a'", "[identities.a]: nobody could be it; say one of token, certificate"),
        (A + "uid = 1\nPut = 'a'", "[identities.a]: there is no key Put; keys are token"),
        (A + "uid = 1\nput = 'a b'", "[identities.a]: 'a b' is neither the name of a tube"),
        (A + "uid = 1\nput = 1", "[identities.a], put: it is a text, or a list of them"),
        (A + "uid = -1", f"[identities.a], uid: it is a number from 0 to {MAX_ID}"),
        (A + f"uid = {MAX_ID + 1}", "[identities.a], uid: it is a number"),
        (A + "gid = true", "[identities.a], gid: it is a number"),
        (A + "listener = '11300'", "[identities.a], listener: it is an address as the log says"),
        (A + "certificate = 'worker'", "[identities.a], certificate: it is CN=NAME of the"),
        (A + "token = 'secret'", "[identities.a], token: it is no hash of a token: make one with"),
        (A + "token = 5", "[identities.a], token: it is no hash of a token: make one with"),
        ("[identities.anonymous]\nuid = 1", "[identities.anonymous]: a name has 1 to 64 letters"),
        ("[identities.'a b']\nuid = 1", "[identities.a b]: a name has 1 to 64 letters"),
        (A + "uid = 1\n[identities.b]\nuid = 1", "a and b have the same uid"),
        (f"{A}token = '{HASH}'\n[identities.b]\ntoken = '{HASH}'", "a and b have the same token"),
        (A + A, "it is no TOML: "),
        ("a = " + "1" * 5000, "it is no TOML: "),
        ("#\n" + "." * 501, "line 2: it has more than 500 dots"),
        (A + "uid = 1\nlimits = 1", "limits is a table, written [limits], not int"),
        (A + "uid = 1\nlimits = {job = 1}", "[identities.a], limits: there is no key job; keys"),
        (A + "uid = 1\nlimits = {jobs = -1}", "[identities.a], limits, jobs: it is a number from"),
        (A + "uid = 1\nlimits = {jobs = true}", "[identities.a], limits, jobs: it is a number"),
        (A + "uid = 1\nlimits = {jobs = '1'}", "[identities.a], limits, jobs: it is a number"),
        (A + "uid = 1\nlimits = {bytes = '1 kb'}", "[identities.a], limits, bytes: it is a num"),
        (A + "uid = 1\nlimits = {bytes = '9999 TiB'}", "[identities.a], limits, bytes: it is a"),
        ("[anonymous]\nlimits = {put-rate = 1000001}", "[anonymous], limits, put-rate: it is a "),
    ],
)
def test_what_is_wrong_is_named_with_its_table_and_key(text: str, where: str) -> None:
    with pytest.raises(BadAccessFile) as caught:
        parse_access(text)
    assert str(caught.value).startswith(where)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("0", 0), ("'0'", 0), ("'5B'", 5), ("'2 KiB'", 2048), ("'3MiB'", 3 << 20),
        ("'4 GiB'", 4 << 30), ("'8192 TiB'", MAX_COUNT), (str(MAX_COUNT), MAX_COUNT),
    ],
)  # fmt: skip
def test_limits_are_numbers_and_sizes(value: str, size: int) -> None:
    limits = f"limits = {{ bytes = {value}, put-rate = {MAX_RATE}, jobs = {MAX_COUNT} }}"
    rules = parse_access(f"[anonymous]\n{limits}\n{A}uid = 1\n{limits}")
    expected = {"bytes": size, "put-rate": MAX_RATE, "jobs": MAX_COUNT}
    assert [each.limits for each in rules.limited] == [expected] * 2
    assert [each.name for each in rules.limited] == ["a", ANONYMOUS]
    assert not parse_access(GOOD).limited


def test_there_are_no_more_identities_than_that() -> None:
    text = "".join(f"[identities.a{number}]\nuid = {number}\n" for number in range(MAX_IDENTITIES))
    assert len(parse_access(text).identities) == MAX_IDENTITIES
    with pytest.raises(BadAccessFile):
        parse_access(text + "[identities.b]\nuid = 1001\n")


VALUES: st.SearchStrategy[object] = st.recursive(
    st.integers(-2, 1 << 33) | st.booleans() | st.text("abC=:/*.1 ", max_size=9) | st.floats(0, 1),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from([*WAYS, "put", "reserve", "look", "manage", "worker", "admin", "x"])
TABLES = st.dictionaries(KEYS, VALUES, max_size=4)


def toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


@given(st.dictionaries(st.sampled_from(["anonymous", "identities.a", "identities.b"]), TABLES))
def test_any_table_is_taken_whole_or_refused_with_a_sentence(
    tables: dict[str, dict[str, object]],
) -> None:
    text = ""
    for name, table in tables.items():
        text += f"[{name}]\n" + "".join(f"{key} = {toml(table[key])}\n" for key in table)
    try:
        rules = parse_access(text)
    except BadAccessFile as problem:
        assert str(problem) and "\n" not in str(problem)
        return
    for name, table in tables.items():
        identity = rules.identities.get(name.partition(".")[2], rules.anonymous)
        patterns = [each for key in ("put", "admin") for each in listed(table.get(key, []))]
        assert {each.pattern for each in identity.grant.granted} >= set(patterns)
        assert list(identity.uids) == listed(table.get("uid", []))


def listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


@given(st.text())
def test_any_text_is_a_file_or_refused(text: str) -> None:
    try:
        parse_access(text)
    except BadAccessFile:
        return
