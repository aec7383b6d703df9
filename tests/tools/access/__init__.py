"""Mirrors binlog_tools/access/."""
