"""
What a connection uses and watches, and how to get another one there.
"""

from typing import Final

DEFAULT: Final = b"default"
"""The tube that a new connection uses and watches (protocol.txt, "Tubes")."""


class TubeChoice:
    """
    The tubes of one connection, as the server's replies have confirmed them.

    :ivar used: where puts go.
    :ivar watched: where jobs come from, in the order of watching.
    """

    def __init__(self) -> None:
        self.used = DEFAULT
        self.watched = {DEFAULT: None}

    def confirm(self, command: str, tube: bytes) -> None:
        """
        Note that the server has done a `use`, `watch` or `ignore`.
        """
        if command == "use":
            self.used = tube
        elif command == "watch":
            self.watched[tube] = None
        elif command == "ignore":
            self.watched.pop(tube, None)

    def commands(self) -> list[tuple[str, bytes]]:
        """
        Name what brings a new connection here.  The first is always a `use`, so that there is
        always an answer that tells a beanstalkd from anything else.
        """
        wanted = [("use", self.used)]
        wanted += [("watch", tube) for tube in self.watched if tube != DEFAULT]
        if DEFAULT not in self.watched:
            wanted.append(("ignore", DEFAULT))
        return wanted
