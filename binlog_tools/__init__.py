"""Tools on the binlog.  They read it through `beanstalk_twisted.binlog` and never import
Twisted.
"""
