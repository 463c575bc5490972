# SPDX-License-Identifier: Apache-2.0
"""The text of metrics: OpenMetrics 1.0, or the older text format of Prometheus, as the client asks."""

from __future__ import annotations

from collections.abc import Iterable

from thresher.observe.prometheus.families import Family, Labels, Spec

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def content_type(accept: str) -> str:
    """Return the best content type for an `Accept` header: OpenMetrics unless the plain format is preferred."""
    wanted = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                weight = _number(parameter[2:])
        if media.lower() in wanted:
            wanted[media.lower()] = max(wanted[media.lower()], weight)
    openmetrics, plain = wanted.values()
    return OPENMETRICS if openmetrics > 0 and openmetrics >= plain else PLAIN


def render(families: Iterable[Family], kind: str) -> bytes:
    """Return the text of families for a content type."""
    lines: list[str] = []
    for spec, samples in families:
        lines += _head(spec, kind)
        for suffix, labels, value in samples:
            lines.append(f"{spec.name}{suffix}{_labels(labels)} {_value(value)}")
    if kind == OPENMETRICS:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _head(spec: Spec, kind: str) -> list[str]:
    if kind == OPENMETRICS:
        unit = [f"# UNIT {spec.name} {spec.unit}"] if spec.unit else []
        return [f"# TYPE {spec.name} {spec.kind}", *unit, f"# HELP {spec.name} {spec.text}"]
    name = spec.name + {"counter": "_total", "info": "_info"}.get(spec.kind, "")
    return [f"# HELP {name} {spec.text}", f"# TYPE {name} {'gauge' if spec.kind == 'info' else spec.kind}"]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


def _value(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
