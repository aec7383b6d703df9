"""A segment file as bytes: its numbers, header, frames and seal (docs/binlog-format.md)."""
