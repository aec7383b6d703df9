"""The living jobs of logs, of any number and size, into running servers, by Spark.

    python examples/spark_replay.py /var/lib/archive --to 127.0.0.1:11300

Each row of the table is the whole state of a job after a change, so the newest row of a job is the
job; its body and its tags are in its newest row that has a body.

Tags go with the jobs, and a server that does not announce them is refused, nothing put: put the
jobs without, by ``--drop-tags``.  Left out, and counted, are buried jobs, and jobs that wait for a
group: each would have to come behind the whole group.  ``binlog-inspect replay`` puts them.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from binlog_tools.spark.session import explained, session

DELAY = "ceil((unix_micros(last.deadline) - unix_micros(current_timestamp())) / 1000000)"
"""What is left of it, in seconds."""

TAGS = {
    # A dead letter that somebody has kicked has its unique key no more.
    "unique_key": "if(full.dead_from is null, full.unique_key, null)",
    "unique_s": "full.unique_s", "concurrency_key": "full.concurrency_key",
    "concurrency_limit": "full.concurrency_limit", "job_group": "full.job_group",
}  # fmt: skip
"""What the jobs carry.  None of them waits for a group, or would do so again."""

LEFT_OUT = {
    "buried": "count_if(last.state = 'buried')",
    "waiting": "count_if(last.state = 'delayed' and last.deadline is null)",
}
"""Jobs that are not put."""


def living(
    spark: SparkSession, logs: list[str], has_tags: bool = True, left_out: Observation | None = None
) -> DataFrame:
    """The jobs, as rows that can be written.

    :param has_tags: with columns for their tags.
    :param left_out: counts those that are not among them, once the rows are written.
    """
    columns = "server,lsn,job,tube,state,priority,ttr_s,deadline,body,unique_key,unique_s"
    columns += ",concurrency_key,concurrency_limit,job_group,dead_from"
    events = (
        spark.read.format("beanstalk_binlog").option("copies", "keep")
        .option("columns", columns).load(logs)
    )  # fmt: skip
    last = F.struct("tube", "state", "priority", "ttr_s", "deadline")
    full = F.struct("body", "unique_key", "unique_s", "concurrency_key", "concurrency_limit",
                    "job_group", "dead_from")  # fmt: skip
    has_body = F.when(F.col("body").isNotNull(), F.col("lsn"))
    jobs = events.groupBy("server", "job").agg(
        F.max_by(last, "lsn").alias("last"), F.max_by(full, has_body).alias("full")
    )
    if left_out is not None:
        jobs = jobs.observe(left_out, *(F.expr(each).alias(n) for n, each in LEFT_OUT.items()))
    jobs = jobs.where("last.state not in ('gone', 'buried')")
    return jobs.where("last.state <> 'delayed' or last.deadline is not null").selectExpr(
        "job", "full.body as body", "last.tube as tube", "last.priority as priority",
        "last.ttr_s as ttr", f"if(last.state = 'delayed', greatest(0, {DELAY}), 0) as delay",
        *(f"{each} as {name}" for name, each in TAGS.items() if has_tags),
    )  # fmt: skip


def main() -> None:
    """Put the jobs of the logs that the command line names."""
    parser = argparse.ArgumentParser(description="Put the living jobs of logs into a server.")
    parser.add_argument("logs", nargs="+", metavar="LOG")
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--drop-tags", action="store_true", help="put the jobs without their tags")
    given = parser.parse_args()
    with explained():
        spark = session("replay", {"spark.ui.enabled": "false", "spark.log.level": "ERROR"})
        left_out = Observation("left out")
        # Older jobs first: that is the order of equal priorities.
        jobs = living(spark, given.logs, not given.drop_tags, left_out)
        jobs = jobs.repartition(given.connections).sortWithinPartitions("job")
        write = jobs.drop("job").write.format("beanstalk").mode("append")
        write.option("address", given.to).save()
        counts = left_out.get
        print(
            f"left out: {counts['buried']} buried jobs, {counts['waiting']} that wait for a group"
        )
        spark.stop()


if __name__ == "__main__":
    main()
