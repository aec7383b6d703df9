"""
The client.  `service.Client` keeps a connection up; `connection.connect` makes one that is not;
`pool.Pool` splits tubes over several servers.

Layers, each knowing only those before it::

    errors, stats, tubes, backoff          values
    forms       what each row of the command table looks like on the wire, both ways
    usedtube    which tube a command is meant for
    reading     bytes into replies: this one, not yet, cannot be right
    exchange    what was asked, and which reply belongs to what; outbox: bytes in pieces
    ──────── the Twisted line ────────
    methods     one method for each row of the table
    pending, deadline, gate     answers, silence and room, each awaited
    places      where a server is
    connection  one connection: order, cancelling, back-pressure
    service     the same over many connections, one after the other
    ──────── several servers ────────
    hashing     which server a tube is on (no Twisted in it)
    lanes, link     one server: its connections for jobs, and the one for the rest
    taking, fleet   who is asked for jobs, and when; statistics of all
    pool        the client for all of them

Below the line there is no clock, no socket, no Deferred: bytes and times go in, values come out.
"""
