"""Mirrors binlog_tools/inspect/."""
