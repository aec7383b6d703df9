"""What has happened in a queue, counted by Spark: ``python examples/spark_history.py LOG…``.

LOG is a server's binlog directory, its archive, or both.  Needs ``pip install '.[spark]'`` and a
Java; docs/spark.md.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from binlog_tools.spark.session import explained, session


def tell(spark: SparkSession, logs: list[str]) -> None:
    """Print how many events of each kind each tube has had."""
    events = spark.read.format("beanstalk_binlog").load(logs)
    events.groupBy("tube", "event").count().orderBy("tube", "event").show(1000, truncate=False)


def main() -> None:
    """Tell it of the logs that the command line names."""
    parser = argparse.ArgumentParser(description="What has happened in a queue.")
    parser.add_argument("logs", nargs="+", metavar="LOG")
    logs = parser.parse_args().logs
    with explained():
        spark = session("history", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
        tell(spark, logs)
        spark.stop()


if __name__ == "__main__":
    main()
