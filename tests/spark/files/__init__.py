"""The door to the files of logs, local ones and others."""
