"""
Tables at an S3 server too.
"""

from tests.object_storage.conftest import s3

__all__ = ["s3"]
