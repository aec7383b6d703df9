"""
``binlog-inspect check``.
"""

import click

from beanstalk_twisted.binlog.directory import RealDirectory
from binlog_tools.checking import check


@click.command("check")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
def command(directory: str) -> None:
    """
    Check every frame, checksum and number of the log in DIRECTORY.

    Nothing is changed; the server may be running (its newest segment may then look torn, being
    written).  Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read.  A
    directory without a log cannot be read; a log of another kind counts as damaged.
    """
    finding = check(RealDirectory(directory))
    for row in finding.segments:
        click.echo(
            f"{row.name}\tLSN {row.first_lsn} to {row.last_lsn}\t"
            f"{row.frames} frames\t{row.end} bytes"
        )
    click.echo(finding.verdict)
    for detail in finding.details:
        click.echo(f"  {detail}")
    raise SystemExit(finding.exit_code)
