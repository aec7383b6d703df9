"""Who may do what: identities, their tokens and their rights, as a file says them (docs/access.md).

Nothing here knows Twisted, a socket, a clock or a file: text, facts and times are given.
"""
