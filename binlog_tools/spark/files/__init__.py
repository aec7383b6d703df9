"""The door to the files of logs: what is in a folder (`listing`), and the bytes of a file, of which
tasks fetch no more than they read (`opening`).

A file's address is text, so it can be sent to tasks; each process opens its own stores (`stores`),
with the credentials of its environment.
"""
