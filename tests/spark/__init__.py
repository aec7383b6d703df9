"""The tables that Spark makes of logs."""
