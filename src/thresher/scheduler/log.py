# SPDX-License-Identifier: Apache-2.0
"""Encode and decode lines of the event log: one JSON object per event and action, sufficient to replay a run."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from thresher.scheduler.actions import Action, AnyAction
from thresher.scheduler.events import AnyEvent, Event
from thresher.scheduler.model import RunSpec


class LogLine(NamedTuple):
    """A decoded line of the event log."""

    n: int  # line number, from 0
    t: float  # seconds since the start of the attempt
    item: AnyEvent | AnyAction | RunSpec  # the start line holds the spec


class _Start(msgspec.Struct):
    start: RunSpec


class _Number(msgspec.Struct):
    n: int
    t: float = 0.0


_encoder = msgspec.json.Encoder(enc_hook=str)
_encode = _encoder.encode
_events: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyEvent)
_actions: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyAction)
_starts = msgspec.json.Decoder(_Start)
_numbers = msgspec.json.Decoder(_Number)


def encode_start(spec: RunSpec, **more: object) -> bytes:
    """Return line 0: the spec and `more` in one object under "start"."""
    start = {**msgspec.to_builtins(spec), **more}
    return _encode({"n": 0, "start": start})


def encode_line(n: int, t: float, item: Event | Action) -> bytes:
    """Return one line without its line feed: `{"n": 17, "t": 1.25, "event": "TaskDone", …}`."""
    return b'{"n":%d,"t":%.6f,' % (n, t) + _encode(item)[1:]


def decode_line(line: bytes) -> LogLine:
    """Decode a line of `encode_line` or `encode_start`. Raise ValueError for any other line."""
    number = _numbers.decode(line)
    head = line[:80]
    if b'"event":' in head:
        return LogLine(number.n, number.t, _events.decode(line))
    if b'"action":' in head:
        return LogLine(number.n, number.t, _actions.decode(line))
    return LogLine(number.n, number.t, _starts.decode(line).start)
