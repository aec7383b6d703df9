"""Addresses of files, folders and tables: local paths, and URLs of object storage, whose options
(``?…``) stand behind the name.
"""

import os

from beanstalk_twisted.object_storage.store import is_url, local_path


def normal(address: str) -> str:
    """Return a path without ``file:``, or a URL in one form, without a slash at its end."""
    if not is_url(address):
        return local_path(address)
    scheme, _, rest = address.partition("://")
    scheme = scheme.lower()
    where, mark, options = rest.partition("?")
    return f"{'s3' if scheme == 's3a' else scheme}://{where.rstrip('/')}{mark}{options}"


def within(folder: str, name: str) -> str:
    """The address of what has this name in a folder."""
    if not is_url(folder):
        return os.path.join(folder, name)
    where, mark, options = folder.partition("?")
    return f"{where.rstrip('/')}/{name}{mark}{options}"


def split(address: str) -> tuple[str, str]:
    """:return: the folder of a file or a folder, and its name there."""
    if not is_url(address):
        return os.path.split(os.path.normpath(address))
    where, mark, options = address.partition("?")
    folder, _, name = where.rstrip("/").rpartition("/")
    return f"{folder}{mark}{options}", name


def name_of(address: str) -> str:
    return split(address)[1]
