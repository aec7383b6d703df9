"""The subcommands of ``binlog-inspect`` that make a log, or an export, of logs."""
