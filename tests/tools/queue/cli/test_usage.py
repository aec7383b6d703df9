"""What makes no sense is refused before a server is asked."""

from __future__ import annotations

import shlex

import pytest
from click.testing import CliRunner

from binlog_tools.queue.cli.commands import cli

ONE_OF = "only one of --tube, --job, --group and --group-by"

WRONG = [
    ("reserve", "a reservation ends with this command"),
    ("reserve --delete --bury", "--delete and --bury contradict"),
    ("reserve --release --delete", "--delete and --release contradict"),
    ("reserve --delete --exec true", "--delete and --exec contradict"),
    ("reserve --exec ''", "the command of --exec is empty"),
    ("reserve --delete --token-file ''", "--token-file : No such file or directory"),
    ("reserve --delete --delay 5", "--delay is for a job that is given back, not for --delete"),
    ("reserve --bury -d 0", "not for --bury"),
    ("reserve --exec true --json", "--json: with --exec nothing is printed but by the command"),
    ("delete", "give the numbers of jobs, or --all\n"),
    ("delete 1 --all", "not both"),
    ("delete 1 -t x", "leave out --tube"),
    ("delete 1 --state ready -y", "leave out --state and --yes"),
    ("delete --all -t x", "--all wants --tube NAME, and --state"),
    ("delete --all --state ready", "--all wants --tube NAME, and --state"),
    ("delete --all -t x --state reserved", "'reserved' is not one of"),
    ("delete 123456 1 0 abc", "'abc' is not the number of a job"),
    ("kick --all --count 3", "only one of them"),
    ("kick -t m 5", "leave out --tube"),
    ("peek 5 -t m", "leave out --tube"),
    ("peek 5 --state ready", "leave out --state"),
    ("peek -t x --state ready --state buried", "only one can be given"),
    ("move m2 --from m 3", "not both"),
    ("move attic 5 --state ready", "--state is for --from"),
    ("move attic 5 --count 1", "--count is for --from"),
    ("move attic --from x --state ready --state buried", "only one can be given"),
    ("stats -s 127.0.0.1:99999", "ports are 1 to 65535"),
    ("stats -j 1.5", "'1.5' is not the number of a job"),
    ("stats --group a --tube b", ONE_OF),
    ("stats --group a --group-by b", ONE_OF),
    ("list x --state lost", "'lost' is not one of"),
    ("list x --limit 0", "0 is not in the range"),
    ("edit 5", "say what to change"),
    *((f"{words} {number}", f"'{number}' is not a finite number")
      for words in ("health --timeout", "promote --timeout", "top --interval", "import - --rate")
      for number in ("nan", "-nan")),
    ("import - --rate inf", "'inf' is not a finite number"),
    ("dead immortal --yes", "--yes is for --kick"),
    *((f"policy unruled {words}", "is not KEY=VALUE")
      for words in ("max-jobs", "max-jobs=", "'max-jobs=1\r\nquit'")),
    ("put x --unique a:b", "--unique 'a:b': 'b' is no whole number"),
    ("put --lines --batch-unique a:7:60", "--batch-unique 'a:7:60': '7:60' is no whole number"),
    ("put x --unique a:", "--unique 'a:': '' is no whole number"),
    ("put x --unique a:4294967296", "unique_seconds is 0 to 4294967295, not 4294967296"),
    ("put x --unique :5", "--unique ':5': unique is not b''; it is 1 to 200 letters"),
    ("put x --unique=", "--unique '': unique is not b''; it is 1 to 200 letters"),
    ("put x --concurrency=", "--concurrency '': concurrency is not b''"),
    ("put x --group=", "--group '': group is not b''"),
    ("put x --after=", "--after '': after is not b''"),
    ("put x --unique a --unique-by a", "give one of --unique and --unique-by, not both"),
    ("put x --group a --group-by a", "give one of --group and --group-by, not both"),
    ("put x --unique a --unique-seconds 5", "--unique-seconds is for --unique-by"),
    ("put x --concurrency-limit 5", "--concurrency-limit is for --concurrency-by"),
    ("put x --concurrency-by a --concurrency-limit 0", "0 is not in the range 1<=x<="),
    ("put -l --unique-by a", "--unique-by is for one job; leave out --lines"),
    ("put x --unique-by \udcff", "--unique-by '\\udcff': unique_by: '\\udcff' is not valid"),
    ("put x --concurrency a:0", "concurrency_limit is 1 to 4294967295, not 0"),
    ("put x --group a:b", "--group 'a:b': group is not b'a:b'; it is 1 to 200 letters"),
    ("put x --group a --after a", "--group and --after: a job of a group cannot wait"),
    ("put -l --unique a", "leave out --lines"),
    ("put x --at now --delay 5", "one of --at and --delay"),
    ("put x --at never", "is no moment to wait for: write 2026-01-31T12:00:00Z, now, +2h, or"),
    *((f"put x --at {moment}", f"'{moment}' is no moment") for moment in ("1.5", "2h", "+2")),
    ("put x --at 2262-01-01", "at most 4,294,967,295 seconds (136 years) from now"),
    ("put x --at 9999-01-01", "at most 4,294,967,295 seconds (136 years) from now"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_usage_is_told_in_words_that_help(words: str, message: str) -> None:
    result = CliRunner().invoke(cli, shlex.split(words))
    assert result.exit_code == 2
    assert message in result.stderr
