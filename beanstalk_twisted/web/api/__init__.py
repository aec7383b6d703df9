"""The API: the operations of the routes below ``/api/v1``."""
