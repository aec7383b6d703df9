"""The tables that Spark makes of logs.

One session for all of them: a JVM takes half a gigabyte and eight seconds to start.
"""
