"""``python -m binlog_tools.spark PIPELINE INPUT… -o OUT``: the pipelines as programs.

``spark-submit --py-files ZIP binlog_tools/spark/__main__.py …`` is the same on a cluster.
"""

from binlog_tools.spark.errors import need


def main() -> None:
    """Call the command, if all that it imports is installed."""
    need("spark", "pyspark", "pyarrow", "numpy", "pandas")
    from binlog_tools.spark.cli.main import cli

    cli(prog_name="python -m binlog_tools.spark")


if __name__ == "__main__":
    main()
