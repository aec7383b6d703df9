"""OpenTelemetry for tasks: a span for each job that is put and for each attempt, in one trace.

The W3C trace context is carried in the job's metadata.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from beanstalk_twisted.worker.attempt import Attempt

try:
    from opentelemetry import trace
    from opentelemetry.trace import SpanKind, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    raise ImportError(
        "OpenTelemetry needs the extra otel: pip install 'beanstalk-twisted[otel]'"
    ) from None

_SYSTEM = "beanstalkd"


class OpenTelemetry:
    """Middleware for `app.App`."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """:param tracer_provider: None for the global one."""
        self._tracer = trace.get_tracer("beanstalk_twisted", tracer_provider=tracer_provider)
        self._carrier = TraceContextTextMapPropagator()

    def sending(self, task: str, tube: str, headers: dict[str, str]) -> None:
        """Add the trace context to the headers of a new job."""
        facts = {
            "messaging.system": _SYSTEM, "messaging.operation.type": "create",
            "messaging.destination.name": tube, "messaging.operation.name": task,
        }  # fmt: skip
        with self._tracer.start_as_current_span(
            f"create {task}", kind=SpanKind.PRODUCER, attributes=facts
        ):
            self._carrier.inject(headers)

    @contextmanager
    def __call__(self, attempt: Attempt[Any]) -> Iterator[None]:
        facts: dict[str, str | int] = {
            "messaging.system": _SYSTEM, "messaging.operation.type": "process",
            "messaging.destination.name": attempt.tube, "messaging.message.id": str(attempt.id),
            "messaging.message.body.size": len(attempt.body),
            "messaging.beanstalkd.attempt": attempt.number,
        }  # fmt: skip
        with self._tracer.start_as_current_span(
            f"process {attempt.tube}", context=self._carrier.extract(attempt.headers),
            kind=SpanKind.CONSUMER, attributes=facts,
        ):  # fmt: skip
            yield
