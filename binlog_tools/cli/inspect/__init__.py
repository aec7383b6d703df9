"""The subcommands of ``binlog-inspect`` that read a log."""
