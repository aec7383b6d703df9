"""The HTTP endpoint of ``--http``: health, metrics, the API and the console.  Imported only with
it.

To add a route:

1. a row in `routes.ROUTES`;
2. its operation, a function from `exchange.Call` to `exchange.Document` (or a Deferred of one, or
   a `exchange.Stream`), under the row's operation id in the mapping that `serving.make_site` joins;
3. for paths below ``/api/``, the same in ``openapi.json``, which a test compares with the table.

An operation runs on the reactor: what takes more than a millisecond or two it returns as pieces,
which are made one a turn (`exchange.Document`).  It refuses by raising `exchange.Refusal`.
Rows that write are called only with ``--http-write`` and after `guards.is_own_request`.
"""
