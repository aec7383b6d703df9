"""OpenTelemetry: the spans of a call and of its attempts are one trace, carried in the metadata."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from beanstalk_twisted.tasks.otel import OpenTelemetry
from beanstalk_twisted.testing import Beanstalk
from tests.tasks.world import Office


def test_a_request_its_job_and_its_attempts_are_one_trace(beanstalk: Beanstalk) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    office = Office(beanstalk, middleware=[OpenTelemetry(provider)])
    tracer = provider.get_tracer("application")

    @office.app.task(tube="mail", backoff="1:1", retries=3)
    def send(to: str) -> None:
        with tracer.start_as_current_span("smtp"):
            if len(exporter.get_finished_spans()) < 4:
                raise OSError(to)

    @office.app.task(tube="news")
    async def post() -> None:
        tracer.start_span("post").end()

    with tracer.start_as_current_span("request"):
        office.result(send.using(headers={"tenant": "acme"}).delay("ada"))
        office.result(post.delay())
    assert beanstalk.stats_job(1).get("metadata") is not None
    office.start(concurrency=2)
    beanstalk.advance(2)
    spans: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        spans.setdefault(span.name, []).append(span)
    (request,) = spans["request"]
    assert len({span.context.trace_id for each in spans.values() for span in each}) == 1
    (created,) = spans["create send"]
    assert created.parent.span_id == request.context.span_id
    assert created.kind is SpanKind.PRODUCER
    failed, good = spans["process mail"]
    for attempt, inner, status in zip(
        (failed, good), spans["smtp"], (StatusCode.ERROR, StatusCode.UNSET), strict=True
    ):
        assert attempt.parent.span_id == created.context.span_id
        assert inner.parent.span_id == attempt.context.span_id
        assert (attempt.kind, attempt.status.status_code) == (SpanKind.CONSUMER, status)
    assert good.attributes["messaging.beanstalkd.attempt"] == 2
    assert good.attributes["messaging.destination.name"] == "mail"
    (inner,), (outer,) = spans["post"], spans["process news"]
    assert inner.parent.span_id == outer.context.span_id
    beanstalk.assert_no_jobs()
