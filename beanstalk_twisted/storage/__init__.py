"""The log at work: group commit, the I/O thread, disk space, compaction, archiving, opening."""
