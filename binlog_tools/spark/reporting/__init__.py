"""The report: tables are read, judged, laid out, and written as one page or as JSON."""
