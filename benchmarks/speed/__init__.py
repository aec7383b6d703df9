"""Speed: this server beside the C beanstalkd, in turns, as one table of ratios.

``python -m benchmarks.speed --help``.  `workloads` says what is measured, each a row of a table;
`figures` what is read off and how two servers are compared; `servers` runs them, `running` loads
them with the program in ``load/``, which `building` compiles; `tables`, `plots` and `publishing`
tell what came out; `ending` is how it all stops when it is told to.
"""
