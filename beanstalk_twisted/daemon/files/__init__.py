"""The files of an operator: read at the start and again on SIGHUP."""
