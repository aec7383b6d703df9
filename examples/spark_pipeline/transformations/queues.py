"""Tables of a queue's history, kept by Spark: the events as they come, and flow by tube and
hour.
"""

from __future__ import annotations

import os

from pyspark import pipelines as sdp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from binlog_tools.spark.session import session

LOG = os.environ.get("BEANSTALK_LOG", "/var/lib/bs")


spark: SparkSession = session()
"""That of the pipeline, which knows the format now."""


@sdp.table
def events() -> DataFrame:
    """What has happened: each run adds what is new."""
    reading = spark.readStream.format("beanstalk_binlog")
    return reading.option("columns", "server,lsn,event,time,job,tube").load(LOG)


@sdp.materialized_view
def hours() -> DataFrame:
    """One row a tube, hour and event."""
    hour = F.date_trunc("hour", "time").alias("hour")
    return spark.read.table("events").groupBy("tube", hour, "event").count()
