"""The text of the protocol: fields of command lines, replies, the small YAML.  Standard library
only.
"""
