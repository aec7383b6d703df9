"""Mirrors binlog_tools/doctor/."""
