"""One set of conversations with three servers: ours in memory, ours as a process, the real
beanstalkd.
"""
