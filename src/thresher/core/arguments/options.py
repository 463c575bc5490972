# SPDX-License-Identifier: Apache-2.0
"""Options of a run and of executors, and parameters of stages, validated before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from thresher.core.files.filesystem import STANDARD_STREAM
from thresher.core.outlets import Branch
from thresher.core.scores import ScoreSource
from thresher.errors import UnsupportedError, UsageError, nearest

PROGRESS_MODES = ("auto", "live", "lines", "json", "none")
EXECUTION_MODES = ("streaming", "batch")
RUN_FOLDER = "_thresher"
"""Name of the run folder in an output folder."""
HALF = 0.5
"""Share of records that may fail in a run with few records, unless `max_errors` allows more."""


@dataclass(frozen=True)
class ErrorBudget:
    """Number or share of records that may fail before the run stops."""

    count: int | None = None
    """Maximum number of failed records."""
    share: float | None = None
    """Maximum share of the records that were read or made; it applies from 1,000 records on."""

    SHARE_COUNTS_FROM = 1000

    @classmethod
    def parse(cls, value: int | float | str | None) -> ErrorBudget:
        """Parse `5%`, `20` or `0`; `None` means `100%`."""
        if value is None:
            return cls(share=1.0)
        text = str(value).strip()
        try:
            if text.endswith("%"):
                share = float(text[:-1]) / 100
                if 0 <= share <= 1:
                    return cls(share=share)
            elif not isinstance(value, bool) and int(text) >= 0:
                return cls(count=int(text))
        except ValueError:
            pass
        raise UsageError(f"max_errors: {value!r} is neither a number of records such as 20 nor a share such as 5%")

    def exceeded(self, failed: int, records: int, *, ended: bool = False) -> bool:
        """Return True if too many records failed. A run that ended with too few records for a share may lose half of
        them."""
        if self.count is not None:
            return failed > self.count
        share = self.share if self.share is not None else 1.0
        if self.is_for_many(records):
            return ended and failed > max(share, HALF) * records
        return share < 1.0 and failed > share * records

    def is_for_many(self, records: int) -> bool:
        """Return True if this is a share and there are too few records for it to apply."""
        return self.count is None and records < self.SHARE_COUNTS_FROM

    @property
    def is_unlimited(self) -> bool:
        """Return True if any number of records may fail, including an unknown one."""
        return self.count is None and (self.share is None or self.share >= 1.0)

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{100 * (self.share or 0):g}%"


class OutletOrigin(NamedTuple):
    """The outlet that a run is made for."""

    outlet: str
    """The run folder of the pipeline and the name of its outlet."""
    digest: str
    """Hash of what was sent there; empty before that is known."""


@dataclass(frozen=True)
class MetricsOptions:
    """Address at which a run serves metrics for Prometheus."""

    port: int
    """TCP port; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    linger_s: float = 0.0
    """Longest time that the end of the run waits for a client to fetch its last figures."""

    def __post_init__(self) -> None:
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 0 <= self.port < 2**16:
            raise UsageError(f"--metrics-port (metrics_port=…): {self.port!r} is not a port: a number from 0 to 65535")
        if not isinstance(self.host, str) or not self.host:
            raise UsageError(f"--metrics-host (metrics_host=…): {self.host!r} is not the address of this machine")
        if isinstance(self.linger_s, bool) or not isinstance(self.linger_s, int | float) or not self.linger_s >= 0:
            raise UsageError(f"--metrics-linger (metrics_linger_s=…): {self.linger_s!r} is not a number of seconds")


@dataclass(frozen=True)
class RunOptions:
    """Options of one run."""

    initial_tasks: tuple[Any, ...] | None = None
    """Tasks for the first stage, instead of one `EmptyTask`."""
    run_dir: str | None = None
    """Location of the run folder."""
    skip_done: bool = False
    """Leave out what an earlier attempt finished, also where its results were in memory and are gone."""
    fresh: bool = False
    """Start over instead of resuming."""
    accept_changes: bool = False
    """Resume although the pipeline or the input changed."""
    max_errors: ErrorBudget = ErrorBudget(share=0.05)
    """Stop if more records fail than this."""
    keep_scores: bool = False
    """Keep every score in the run folder."""
    known_scores: ScoreSource | None = None
    """Another run whose scores are reused where they are valid."""
    dropped_to: str | None = None
    """Folder for dropped records."""
    ledger: bool = True
    """Keep a run folder, so that the run can be resumed."""
    progress: str = "auto"
    """`auto`, `live`, `lines`, `json` or `none`."""
    dashboard: bool = False
    """Serve the dashboard while it runs."""
    otel: bool = False
    """Send an OpenTelemetry trace at the end."""
    recipe: Mapping[str, Any] | None = None
    """The resolved recipe, for the run folder."""
    origin: OutletOrigin | None = None
    """The outlet that the run is made for, if it is."""
    branches: list[Branch] = field(default_factory=list)
    """The pipeline and its outlets in the order in which they run, for the display; empty if it has no outlets."""
    metrics: MetricsOptions | None = None
    """Address for metrics, if they are served."""
    watcher: Any = None
    """Display that gets every snapshot besides the one for people; set while metrics are served."""

    def __post_init__(self) -> None:
        check_choice("progress", self.progress, PROGRESS_MODES)
        for name in ("dropped_to", "run_dir"):
            if getattr(self, name) in ("", STANDARD_STREAM):
                what = "standard output" if getattr(self, name) else "empty"
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} ({name}=…): {getattr(self, name)!r} is {what}, not a folder; name a folder")
        for name in () if self.ledger else ("keep_scores", "run_dir", "fresh", "accept_changes", "dashboard", "otel"):
            if getattr(self, name):
                flag = name.replace("_", "-")
                raise UsageError(
                    f"--{flag} ({name}=…) is about the run folder, and there is none with --no-ledger (ledger=False); "
                    "leave one of them out"
                )


def merge_options(
    executor: str,
    given: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    legal: Iterable[str],
    cannot: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Merge the keyword arguments and `config={…}` of an executor into one dict; raise on an unknown key.

    Options or `option=value` pairs that `cannot` lists are refused with its reason.
    """
    names = sorted(legal)
    options: dict[str, Any] = {}
    for source in (config or {}), given:
        for key, value in source.items():
            refused = option_key(key, value, cannot or {})
            if cannot and refused is not None:
                raise UnsupportedError(
                    f"{executor} does not honour {key}={value!r}: {cannot[refused]}. Leave it out, or take another "
                    "executor"
                )
            if key not in names:
                raise UsageError(
                    f"{executor}: unknown option {key!r}.{nearest(key, names)} Legal options: {', '.join(names)}"
                )
            options[key] = value
    return options


def option_key(option: str, value: Any, cannot: Mapping[str, str]) -> str | None:
    """Return the key of `cannot` that covers an executor's option; `None` if it is supported."""
    return next((key for key in (option, f"{option}={value}") if key in cannot), None)


def check_choice(what: str, value: Any, legal: Iterable[str]) -> str:
    """Return `value` if it is one of `legal`, else raise."""
    names = list(legal)
    if value not in names:
        raise UsageError(f"{what}: {value!r} is not one of {', '.join(names)}.{nearest(str(value), names)}")
    return str(value)


def check_count(what: str, value: Any, least: int = 1) -> int:
    """Return `value` if it is a whole number of `least` or more, else raise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what}: {value!r} is not a whole number of {least} or more")
    return value


def check_flag(what: str, value: Any) -> bool:
    """Return `value` if it is a boolean, else raise."""
    if not isinstance(value, bool):
        raise UsageError(f"{what}: {value!r} is neither True nor False")
    return value


def check_positive(what: str, value: Any, unit: str) -> float:
    """Return `value` if it is a number above 0, else raise; `unit` appears in the message."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise UsageError(f"{what}: {value!r} is not a number of {unit} above 0")
    return float(value)


def check_amounts(what: str, value: Any) -> dict[str, float]:
    """Return `value` if it maps names to numbers of 0 or more, else raise."""
    if not isinstance(value, Mapping):
        raise UsageError(f'{what}: {value!r} is not a mapping of names to amounts, such as {{"licence": 2}}')
    for name, amount in value.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
            raise UsageError(f"{what}: {name}: {amount!r} is not a number of 0 or more")
    return {str(name): float(amount) for name, amount in value.items()}


# -- parameters that may be one value or a list: a list is a chain, applied in order -----------------------------------


def as_chain(stage: str, parameter: str, given: Any) -> list[Any]:
    """Return the links of a chain; a single value is a chain of one."""
    links = list(given) if isinstance(given, list | tuple) else [given]
    if not links:
        raise UsageError(f"{stage}.{parameter}: an empty list; give one or more")
    for link in links:
        # Another class may be a function of a text, such as `str`.
        if isinstance(link, type) and (hasattr(link, "score_document") or hasattr(link, "modify_document")):
            raise UsageError(f"{stage}.{parameter}: {link.__name__} is a class; write {link.__name__}()")
    return links


def chain_problems(links: list[Any]) -> list[str]:
    """Return the problems that the links of a chain report before a run; functions report none."""
    checks = [getattr(link, "check_before_run", None) for link in links]
    return [text for check in checks if callable(check) for text in check()]


def per_link(stage: str, parameter: str, given: Any, links: int) -> list[Any]:
    """Return one value per link of a chain; a single value, or a list of one, applies to all of them."""
    values = list(given) if isinstance(given, list | tuple) else [given]
    if len(values) == 1:
        return values * links
    if len(values) != links:
        raise UsageError(
            f"{stage}.{parameter}: {len(values)} values for a chain of {links}; give one value, or a list of {links}"
        )
    return values


def field_name(stage: str, parameter: str, given: Any) -> str:
    """Validate the name of a column."""
    if not isinstance(given, str) or not given:
        raise UsageError(f"{stage}.{parameter}: {given!r} is not the name of a column")
    return given


def field_names(stage: str, parameter: str, given: Any) -> tuple[str, ...]:
    """Validate the names of the columns that one link of a chain reads: a name, or a list of names."""
    names = given if isinstance(given, list | tuple) else [given]
    if not names:
        raise UsageError(f"{stage}.{parameter}: an empty list; name one column or more")
    if len(set(map(str, names))) != len(names):
        raise UsageError(f"{stage}.{parameter}: {given!r} names a column twice")
    return tuple(field_name(stage, parameter, name) for name in names)


def unique_names(names: list[str]) -> list[str]:
    """Return the names of the links; the second of a kind gets `-2`."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique
