"""The report: tables are read (`tables`, `readings`, `series` in `steps`, with histograms in
`lengths`), judged (`summaries`, `findings`), laid out (`sections`) and written as one page
or as JSON (`page`); `making` does all of it.  Neither Spark nor Java is needed:
`storing` finds a table's files.
"""
