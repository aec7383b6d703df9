"""
A client for several servers, over which tubes are split.
"""
