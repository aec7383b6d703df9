"""Commands that beanstalkd does not have, asked of the queue."""

from __future__ import annotations

from beanstalk_twisted.wire import yaml
from beanstalk_twisted.wire.extensions import CAPABILITIES, EXTENSIONS
from tests.rules.conversation import Server


def test_capabilities_are_the_rows_of_the_table_and_the_tags() -> None:
    tags = ["put idp:", "put con:", "put grp:", "put aft:", "put meta:", "put-batch idp:"]
    names = [*[row.form or row.name for row in EXTENSIONS], *tags]
    assert [name.decode() for name in CAPABILITIES] == names
    listed = "".join(f"- {yaml.item(name.encode()).decode()}\n" for name in names)
    assert Server().connect().says("capabilities") == f"OK {len(listed) + 4}\r\n---\n{listed}"
