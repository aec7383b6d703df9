"""
Who runs on a directory of beanstalkd, asked without disturbing anybody.
"""

import errno

from beanstalk_twisted.binlog.directory import holder_of as holder_of


def refuse_running(path: str) -> None:
    """
    :raise OSError: a beanstalkd runs on this directory.
    """
    pid = holder_of(path)
    if pid:
        who = f"process {pid}" if pid > 0 else "a process that cannot be named"
        raise OSError(
            errno.EBUSY,
            f"a beanstalkd runs on it ({who}), so what is read now is soon not true; nothing was "
            f"touched. Stop that server, or look at a copy of the directory: cp -a {path} COPY",
            path,
        )
