"""``python -m binlog_tools.spark PIPELINE INPUT… -o OUT``: the pipelines as programs.

``spark-submit --py-files ZIP binlog_tools/spark/__main__.py …`` is the same on a cluster.
"""

from beanstalk_twisted.programs import INTERRUPTS, outlive_readers
from beanstalk_twisted.programs import main as run
from binlog_tools.spark.errors import need

PROGRAM = "python -m binlog_tools.spark"


def main() -> None:
    """Call the command, if all that it imports is installed."""
    need("spark", "pyspark", "pyarrow", "numpy", "pandas")
    from binlog_tools.spark.cli import cli

    # Java is at the other end of a socket.
    outlive_readers()
    INTERRUPTS.tell_the_command()
    cli.main(prog_name=PROGRAM, standalone_mode=False)


if __name__ == "__main__":
    run(PROGRAM)
