"""
What a write of jobs can fail with, each in one line that says what to do.
"""


class SinkError(Exception):
    """
    Rows cannot become jobs.

    :ivar code: stable, ``SINK_…``; the message begins with it, in brackets.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"[{code}] {message}")
        self.code = code

    def __reduce__(self) -> "tuple[type[SinkError], tuple[str, str]]":
        return type(self), (self.code, str(self).removeprefix(f"[{self.code}] "))


def spans(rows: "list[int]") -> str:
    """
    Row numbers as people read them: ``3-7, 9``.

    :param rows: ascending, without repetition.
    """
    found: list[list[int]] = []
    for row in rows:
        if found and found[-1][1] == row - 1:
            found[-1][1] = row
        else:
            found.append([row, row])
    return ", ".join(f"{first}-{last}" if first < last else str(first) for first, last in found)
