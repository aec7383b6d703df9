"""What test_sessions.py runs in a process of its own, since a process has either a classic session
or one of Connect: ``python -m tests.spark.through_connect LOG OUT HOST:PORT``, with
``SPARK_REMOTE``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

from binlog_tools.spark.cli import cli
from binlog_tools.spark.errors import explain_error
from binlog_tools.spark.session import session


def said(path: str) -> str:
    try:
        session().read.format("beanstalk_binlog").load(path).count()
    except Exception as problem:
        return explain_error(problem)
    return ""


def main(log: str, out: str, address: str) -> None:
    """Read, write and stream through Connect, and print what was found, as JSON."""
    spark = session()
    settings = spark.conf.getAll
    session("again", {"spark.sql.shuffle.partitions": "7"})
    found = {
        "unset": spark.conf.getAll == settings,
        "classic": hasattr(spark, "sparkContext"),
        "said": said(f"{log}-nowhere"),
    }
    for words in (["events", log, "-o", f"{out}/events"],
                  ["tables", f"{out}/events", "-o", f"{out}/tables"]):  # fmt: skip
        cli.main(words, standalone_mode=False)
    puts = F.expr("event = 'put'")
    body = F.expr("concat('job ', job) as body")
    reading = spark.read.format("beanstalk_binlog").option("columns", "event,job").load(log)
    found["puts"] = reading.where(puts).count()
    jobs = reading.where(puts).select(body, F.lit("batch").alias("tube"))
    jobs.write.format("beanstalk").mode("append").option("address", address).save()
    stream = spark.readStream.format("beanstalk_binlog").option("columns", "event,job").load(log)
    followed = stream.where(puts).select(body, F.lit("stream").alias("tube")).writeStream
    query = (
        followed.format("beanstalk").option("address", address)
        .option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    found["views"] = [table.name for table in spark.catalog.listTables() if table.isTemporary]
    Path(out, "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
