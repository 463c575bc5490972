# SPDX-License-Identifier: Apache-2.0
"""Hand a trace to others: to an OTLP endpoint (extra `otel`), or as lines of OTLP/JSON, which need no package."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.credentials import redacted, without_credentials
from thresher.errors import MissingPackageError, RunFailedError
from thresher.observe.tracing import Span, Trace, Value
from thresher.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

PATH = "/v1/traces"
"""Path of traces at an OTLP endpoint."""
DEFAULT_ENDPOINT = "http://localhost:4318"
"""Where a collector on this machine listens."""
BATCH = 500
"""Spans in one request or line."""
_LOGGER = "opentelemetry"
_INTERNAL, _ERROR = 1, 2


def check_otel() -> None:
    """Raise MissingPackageError if what sends traces is not installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401 - it is looked whether it is there
    except ImportError as error:
        raise MissingPackageError(
            f"sending traces needs OpenTelemetry ({error.name} is missing): pip install 'thresher[otel]'"
        ) from None


def endpoint_of(given: str | None = None) -> str:
    """Return the URL that traces go to: that of `given`, else of OpenTelemetry's variables, else of this machine."""
    whole = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if given is None and whole:
        return whole
    base = (given or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def send(trace: Trace, endpoint: str | None = None) -> str:
    """Send a trace to an OTLP endpoint over HTTP, and return its URL without credentials. Raise if it is refused.

    Headers, certificates, compression, timeout and attributes of the resource are those of OpenTelemetry's variables.
    """
    check_otel()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    url = endpoint_of(endpoint)
    shown = without_credentials(url)
    exporter = OTLPSpanExporter(endpoint=url)
    told = _Told()
    logger = logging.getLogger(_LOGGER)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(told)
    try:
        spans = list(_sdk_spans(trace))
        for first in range(0, len(spans), BATCH):
            if exporter.export(spans[first : first + BATCH]) is not SpanExportResult.SUCCESS:
                raise RunFailedError(f"traces could not be sent to {shown}: {told.text or 'it did not take them'}")
    finally:
        logger.removeHandler(told)
        logger.propagate = propagates
        exporter.shutdown()  # type: ignore[no-untyped-call]  # it has no types
    return shown


class _Told(logging.Handler):
    """Keeps what the exporter says last."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the first line of a message."""
        self.text = redacted(record.getMessage().partition("\n")[0][:300])


def _sdk_spans(trace: Trace) -> Iterator[ReadableSpan]:
    """Yield the spans as those of OpenTelemetry's SDK."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(span_id: str) -> SpanContext:
        return SpanContext(int(trace.trace_id, 16), int(span_id, 16), False, TraceFlags(TraceFlags.SAMPLED))

    resource = Resource.create({"service.version": __version__, **_service()})
    scope = InstrumentationScope("thresher", __version__)
    for span in trace.spans:
        yield ReadableSpan(
            span.name,
            context=context(span.span_id),
            parent=context(span.parent_id) if span.parent_id else None,
            resource=resource,
            attributes=_attributes(span),
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=scope,
        )


def _service() -> dict[str, str]:
    return {"service.name": os.environ.get("OTEL_SERVICE_NAME") or "thresher"}


def _attributes(span: Span) -> dict[str, Value]:
    return span.attributes if span.error is None else {**span.attributes, "error.type": span.error}


def json_lines(trace: Trace) -> Iterator[bytes]:
    """Yield a trace as OTLP/JSON, one request a line, as the file exporter of OpenTelemetry writes it."""
    resource = {"attributes": _json_attributes({**_service(), "service.version": __version__})}
    scope = {"name": "thresher", "version": __version__}
    for first in range(0, len(trace.spans), BATCH):
        spans = [_json_span(trace.trace_id, span) for span in trace.spans[first : first + BATCH]]
        request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]}
        yield msgspec.json.encode(request) + b"\n"


def _json_span(trace_id: str, span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span.span_id,
        **({"parentSpanId": span.parent_id} if span.parent_id else {}),
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _json_attributes(_attributes(span)),
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }
    return found


def _json_attributes(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _json_value(value)} for key, value in attributes.items()]


def _json_value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}
