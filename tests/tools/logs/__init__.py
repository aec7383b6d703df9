"""Mirrors binlog_tools/logs/."""
