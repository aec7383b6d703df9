"""The report: tables are read (`stored`, `readings`, `series`), judged (`findings`), laid out
(`sections`) and written as one page or as JSON (`page`); `making` does all of it, and `scales` has
units and steps.  Neither Spark nor Java is needed: `storing` finds the files of a table.
"""
