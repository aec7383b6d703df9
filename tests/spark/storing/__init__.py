"""Tests of `binlog_tools.spark.storing`: none needs Spark or Java."""
