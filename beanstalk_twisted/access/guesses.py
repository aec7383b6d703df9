"""
Wrong tokens cost time: each one from an address has its next one wait longer.

A right token ends no wait: who has one could guess between two uses of it.
"""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from typing import Final

FIRST_S: Final = 0.25
"""Seconds from the first wrong token to the next one: a person who mistypes notices nothing."""

LONGEST_S: Final = 60.0
"""Seconds between two after the ninth: 1,440 a day."""

FORGET_S: Final = 900.0
"""Seconds without a wrong token after which an address is like any other again."""

MAX_ADDRESSES: Final = 10_000
"""Remembered at once, some 3 MB; of more, those are forgotten whose last wrong token is oldest."""


class Guesses:
    """Counts wrong tokens by address."""

    def __init__(self) -> None:
        # By address: how many there were, and when the last one was.
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._wrong)

    def wait_s(self, address: str, now_s: float) -> float:
        """:return: how long the next token from there has to wait from now on."""
        found = self._wrong.get(address)
        if found is None:
            return 0.0
        count, last_s = found
        if now_s - last_s >= FORGET_S:
            del self._wrong[address]
            return 0.0
        # Of a float no more than so many doublings are needed.
        delay_s = min(FIRST_S * 2.0 ** min(count - 1, 20), LONGEST_S)
        return max(0.0, last_s + delay_s - now_s)

    def wrong(self, address: str, now_s: float) -> None:
        """Count one more."""
        count, last_s = self._wrong.pop(address, (0, now_s))
        if now_s - last_s >= FORGET_S:
            count = 0
        self._wrong[address] = count + 1, now_s
        if len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)


def place_of(host: str) -> str:
    """
    :param host: an IP address, or something else that tells peers apart.
    :return: what is counted as one address: of IPv6 the network of 64 bits, which one host has.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
