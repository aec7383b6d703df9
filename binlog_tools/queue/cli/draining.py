"""
``beanstalk drain`` and ``undrain``.
"""

import click

from binlog_tools.console.output import Output
from binlog_tools.queue.addresses import Address
from binlog_tools.queue.cli import options
from binlog_tools.queue.extensions import Extensions


@click.command("drain")
@options.server
@options.as_json
def drain(address: Address, is_json: bool) -> None:
    """
    Let the server refuse new jobs, until `undrain` or its next start; workers go on.
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("drain", "SIGUSR1 to its process makes it refuse new jobs")
        extensions.drain()
    _show(True, is_json)


@click.command("undrain")
@options.server
@options.as_json
def undrain(address: Address, is_json: bool) -> None:
    """
    Let the server take new jobs again.
    """
    with options.connected(address) as queue:
        extensions = Extensions(queue)
        extensions.need("undrain", "it takes new jobs again when it was started anew")
        extensions.undrain()
    _show(False, is_json)


def _show(is_draining: bool, is_json: bool) -> None:
    if is_json:
        Output(True).document({"draining": is_draining})
    else:
        Output().line("new jobs are refused" if is_draining else "new jobs are taken")
