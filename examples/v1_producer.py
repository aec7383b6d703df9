"""Put each line of the input as a job, as producers of the first protocol, v1, have always done.

    seq 1000 | python examples/v1_producer.py [HOST [PORT]]

The port is one that the server opened with ``--listen-v1``: 11301 without one.
"""

import socket
import sys


def main(host: str = "127.0.0.1", port: str = "11301") -> None:
    """Put the lines, and say how many there were."""
    count = 0
    with socket.create_connection((host, int(port))) as server, server.makefile("rb") as replies:
        for line in sys.stdin.buffer:
            body = line.rstrip(b"\n")
            server.sendall(b"put 100 %d\r\n%b\r\n" % (len(body), body))
            reply = replies.readline()
            if reply != b"INSERTED\r\n":
                sys.exit(f"{body!r} was not put: {reply!r}")
            count += 1
    print(f"{count} jobs put")


if __name__ == "__main__":
    main(*sys.argv[1:])
