"""``binlog-inspect completion``."""

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """
    Print what makes a shell complete commands and options.

    \b
    For one session, or in ~/.bashrc:  eval "$(binlog-inspect completion bash)"
    In ~/.zshrc:                       eval "$(binlog-inspect completion zsh)"
    For fish:  binlog-inspect completion fish > ~/.config/fish/completions/binlog-inspect.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "binlog-inspect", "_BINLOG_INSPECT_COMPLETE").source())
