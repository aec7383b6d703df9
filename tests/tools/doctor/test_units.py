"""Removed options are found wherever systemd takes the options of a server from."""

from __future__ import annotations

from pathlib import Path

import pytest

from beanstalk_twisted.daemon.removed_options import removed_among
from binlog_tools.doctor import checks
from binlog_tools.doctor.facts import configured

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
