"""Tables in object storage too."""

from tests.object_storage.conftest import gs, s3

__all__ = ["gs", "s3"]
