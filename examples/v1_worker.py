"""Do jobs as workers of the first protocol, v1, have always done: count the words of each.

    python examples/v1_worker.py [HOST [PORT]]

The port is one that the server opened with ``--listen-v1``: 11301 without one.  An empty job is
buried.  Ctrl-C ends it; the server gives the job in hand to somebody else.
"""

import socket
import sys


def main(host: str = "127.0.0.1", port: str = "11301") -> None:
    """Work until the server has gone."""
    with socket.create_connection((host, int(port))) as server, server.makefile("rb") as replies:
        while True:
            server.sendall(b"reserve\r\n")
            words = replies.readline().split()
            if not words:
                break
            _, job, priority, size = words
            body = replies.read(int(size) + 2)[:-2]
            if body:
                print(f"{len(body.split())} words in job {job.decode()}", flush=True)
                server.sendall(b"delete %b\r\n" % job)
            else:
                server.sendall(b"bury %b %b\r\n" % (job, priority))
            if replies.readline() not in (b"DELETED\r\n", b"BURIED\r\n"):
                print(f"job {job.decode()} took too long, and is somebody else's", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
