"""
``binlog-inspect``: the one module of the tools that prints and exits.
"""

import signal

import click

from beanstalk_twisted import __version__
from beanstalk_twisted.binlog.directory import RealDirectory
from binlog_tools.checking import check

CANNOT_READ = 4
"""Exit code when a log cannot be read at all."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="binlog-inspect")
def cli() -> None:
    """
    Look inside the binlog of a beanstalk-twisted server.
    """


@cli.command("check")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
def check_command(directory: str) -> None:
    """
    Check every frame, checksum and number of the log in DIRECTORY.

    Nothing is changed; the server may be running (its newest segment may then look torn, being
    written).  Exit codes: 0 sound, 1 torn tail only, 2 wrong usage, 3 damaged, 4 cannot be read.  A
    directory without a log cannot be read; a log of another kind counts as damaged.
    """
    try:
        finding = check(RealDirectory(directory))
    except OSError as problem:
        click.echo(f"binlog-inspect: {directory}: {problem.strerror}", err=True)
        raise SystemExit(CANNOT_READ) from None
    for row in finding.segments:
        click.echo(
            f"{row.name}\tLSN {row.first_lsn} to {row.last_lsn}\t"
            f"{row.frames} frames\t{row.end} bytes"
        )
    click.echo(finding.verdict)
    for detail in finding.details:
        click.echo(f"  {detail}")
    raise SystemExit(finding.exit_code)


def main() -> None:
    """
    The console script.  A reader that goes away ends it as it ends any Unix tool.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    cli(prog_name="binlog-inspect")
