"""``binlog-inspect``: the one package of the tools that prints and exits.

One module for each command (`binlog_tools.cli.commands` lists them); what they do is done
elsewhere.
"""
