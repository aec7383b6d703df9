"""Mirrors binlog_tools/rewrite/."""
