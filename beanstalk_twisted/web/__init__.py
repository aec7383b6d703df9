"""The HTTP endpoint of ``--http``: health, metrics, the API and the console.  Imported only with
it.  An operation is a function from `exchange.Call` to a `exchange.Answer` or a Deferred of one.
"""
