"""
The living jobs of logs, of any number and size, into running servers, by Spark.

    python examples/spark_replay.py /var/lib/archive --to 127.0.0.1:11300

Each row of the table is the whole state of a job after a change, so the newest row of a job is the
job; its body is in its newest row that has one.  Buried jobs are left out.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from binlog_tools.spark.session import explained, session

DELAY = "ceil((unix_micros(last.deadline) - unix_micros(current_timestamp())) / 1000000)"
"""What is left of it, in seconds."""


def living(spark: SparkSession, logs: list[str]) -> DataFrame:
    """
    The jobs, as rows that can be written.
    """
    events = (
        spark.read.format("beanstalk_binlog").option("copies", "keep")
        .option("columns", "server,lsn,job,tube,state,priority,ttr_s,deadline,body").load(logs)
    )  # fmt: skip
    last = F.struct("tube", "state", "priority", "ttr_s", "deadline")
    has_body = F.when(F.col("body").isNotNull(), F.col("lsn"))
    jobs = events.groupBy("server", "job").agg(
        F.max_by(last, "lsn").alias("last"), F.max_by("body", has_body).alias("body")
    )
    return jobs.where("last.state not in ('gone', 'buried')").selectExpr(
        "job", "body", "last.tube as tube", "last.priority as priority", "last.ttr_s as ttr",
        f"if(last.state = 'delayed', greatest(0, {DELAY}), 0) as delay",
    )  # fmt: skip


def main() -> None:
    """
    Put the jobs of the logs that the command line names.
    """
    parser = argparse.ArgumentParser(description="Put the living jobs of logs into a server.")
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--connections", type=int, default=4)
    given = parser.parse_args()
    with explained():
        spark = session("replay", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
        # Older jobs first: that is the order of equal priorities.
        jobs = living(spark, given.logs).repartition(given.connections).sortWithinPartitions("job")
        write = jobs.drop("job").write.format("beanstalk").mode("append")
        write.option("address", given.to).save()
        spark.stop()


if __name__ == "__main__":
    main()
