"""Which segments a query reads, and what each of its tasks reads of them.

From paths to segments (`candidates`, `measuring`: `finding`), left out by filters (`pruning`), cut
into tasks (`planning`) and read (`opening`); `summaries` is the view of segments.  Imports
`files` and `segments`.
"""
