# SPDX-License-Identifier: Apache-2.0
"""Blocklists of domains, URLs and words in URLs."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import file_info
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.columns.list_file import lines_of, missing_files

if TYPE_CHECKING:
    from thresher.stages.text.index_file import ArrayIndex

Lists = str | list[str] | None
"""One file or several, one entry per line, plain or compressed."""

REASONS = ("domain", "url", "banned-word", "soft-word", "banned-subword")
"""Drop reasons; the first that applies to a record is reported."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NO_WORD = re.compile(r"[^a-z0-9]+")


class UrlBlocklistFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drop records whose URL is on a blocklist or contains words from one.

    Reasons, in this order: `domain` (the host or a parent domain is listed), `url` (the URL is listed, ignoring scheme,
    fragment and trailing slash), `banned-word` (a listed word between characters that are not letters or digits),
    `soft-word` (at least `soft_word_threshold` distinct words of another list), `banned-subword` (a listed word
    anywhere, even across such characters). Letters are compared in lower case, except in the path of `url`. Domains and
    URLs are stored as 64-bit hashes in a file that all workers share: 8 bytes each.
    """

    def __init__(  # noqa: PLR0913 - a list for each reason
        self,
        domains: Lists = None,
        urls: Lists = None,
        banned_words: Lists = None,
        soft_banned_words: Lists = None,
        banned_subwords: Lists = None,
        soft_word_threshold: int = 2,
        url_field: str = "url",
    ) -> None:
        """Each list is one file or several; lines that start with `#` are comments. Records without a URL are kept."""
        self.domains, self.urls = domains, urls
        self.banned_words, self.soft_banned_words, self.banned_subwords = (
            banned_words,
            soft_banned_words,
            banned_subwords,
        )
        if not any(_paths(given) for given in (domains, urls, banned_words, soft_banned_words, banned_subwords)):
            raise UsageError("UrlBlocklistFilter: no list is given; name a file in domains, urls or banned_words")
        self.soft_word_threshold = soft_word_threshold
        self.url_field = field_name("UrlBlocklistFilter", "url_field", url_field)
        self._index: ArrayIndex | None = None
        self._words: _WordLists | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column that holds the URL."""
        return ["data"], [self.url_field]

    def check_before_run(self) -> list[str]:
        """Report missing lists."""
        names = ("domains", "urls", "banned_words", "soft_banned_words", "banned_subwords")
        return [
            text for name in names for text in missing_files(f"UrlBlocklistFilter.{name}", _paths(getattr(self, name)))
        ]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Build the file of hashes unless it exists."""
        self._hashes()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Map the file of hashes, and read the short lists."""
        self._index = self._hashes()
        self._words = _WordLists(
            self.banned_words, self.soft_banned_words, self.banned_subwords, self.soft_word_threshold
        )

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Drop the records that match a list."""
        reasons = self.reasons([url if isinstance(url, str) else "" for url in task.values(self.url_field)])
        for reason in REASONS:
            dropped = {row: found[1] for row, found in enumerate(reasons) if found is not None and found[0] == reason}
            if dropped:
                task = task.drop(list(dropped), reason, list(dropped.values()))
                reasons = [found for row, found in enumerate(reasons) if row not in dropped]
        return task

    def reasons(self, urls: Sequence[str]) -> list[tuple[str, str] | None]:
        """Return the drop reason and the matched entry for each URL, or `None`."""
        if self._index is None or self._words is None:
            self.setup()
        assert self._index is not None
        assert self._words is not None
        hosts = [host_of(url) for url in urls]
        found: list[tuple[str, str] | None] = [None] * len(urls)
        above = [(row, name) for row, host in enumerate(hosts) for name in _with_parent_domains(host)]
        for row, name in _listed(self._index.arrays["domains"], above):
            found[row] = found[row] or ("domain", name)
        whole = [(row, plain_url(url)) for row, url in enumerate(urls) if url and found[row] is None]
        for row, name in _listed(self._index.arrays["urls"], whole):
            found[row] = ("url", name)
        return [was or self._words.reason(url) if url else was for was, url in zip(found, urls, strict=True)]

    def _hashes(self) -> ArrayIndex:
        from thresher.stages.text.index_file import ArrayIndex, cached_index

        files = {"domains": _paths(self.domains), "urls": _paths(self.urls)}
        key = {kind: [list(file_info(path)) for path in paths] for kind, paths in files.items()}

        def build() -> ArrayIndex:
            return ArrayIndex(
                {},
                {
                    "domains": _hash_array(domain_entry(entry) for entry in _entries("domains", files["domains"])),
                    "urls": _hash_array(plain_url(entry) for entry in _entries("urls", files["urls"])),
                },
            )

        return cached_index("url-blocklist", key, build)


class _WordLists:
    """The word lists."""

    def __init__(self, banned: Lists, soft: Lists, inside: Lists, enough: int) -> None:
        self._banned = _normalized("banned_words", banned)
        self._soft = _normalized("soft_banned_words", soft)
        parts = sorted(_normalized("banned_subwords", inside))
        self._inside = re.compile("|".join(map(re.escape, parts))) if parts else None
        self._enough = enough

    def reason(self, url: str) -> tuple[str, str] | None:
        lowered = url.lower()
        if self._banned or self._soft:
            words = set(_NO_WORD.split(lowered))
            if hard := words & self._banned:
                return "banned-word", min(hard)
            soft = words & self._soft
            if soft and len(soft) >= self._enough:
                return "soft-word", " ".join(sorted(soft))
        if self._inside is not None and (part := self._inside.search(_NO_WORD.sub("", lowered))) is not None:
            return "banned-subword", part.group()
        return None


def host_of(url: str) -> str:
    """Return the host of a URL in lower case; the scheme may be missing."""
    rest = _SCHEME.sub("", url.strip(), count=1) if "://" in url else url.strip()
    host = re.split(r"[/?#\\]", rest.lstrip("/"), maxsplit=1)[0].rpartition("@")[2]
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].rstrip(".").lower()


def plain_url(url: str) -> str:
    """Return a URL without scheme, user, fragment and trailing slash, with its host in lower case."""
    rest = (_SCHEME.sub("", url.strip(), count=1) if "://" in url else url.strip()).lstrip("/")
    rest = rest.partition("#")[0]
    cut = re.search(r"[/?\\]", rest)
    host, path = (rest, "") if cut is None else (rest[: cut.start()], rest[cut.start() :])
    return host.rpartition("@")[2].lower() + path.rstrip("/")


def domain_entry(entry: str) -> str:
    """Normalize a line of a domain list: a leading `*.` or dot is ignored, a whole URL stands for its host."""
    return host_of(entry.removeprefix("*.").removeprefix("."))


def _with_parent_domains(host: str) -> list[str]:
    """Return a host and its parent domains: `a.b.c`, `b.c`, `c`."""
    parts = host.split(".") if host and not host.startswith("[") else [host] if host else []
    return [".".join(parts[n:]) for n in range(len(parts))]


def _listed(hashes: Any, names: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the rows and names whose hash is in the sorted array."""
    import numpy as np

    if not names or not len(hashes):
        return []
    wanted = np.array([_hash(name) for _, name in names], dtype=np.uint64)
    positions = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    return [names[n] for n in np.flatnonzero(hashes[positions] == wanted).tolist()]


def _hash_array(names: Iterable[str]) -> Any:
    import numpy as np

    return np.unique(np.frombuffer(array("Q", (_hash(name) for name in names if name)), dtype=np.uint64))


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _paths(given: Lists) -> list[str]:
    return [given] if isinstance(given, str) else list(given or [])


def _entries(parameter: str, paths: Sequence[str]) -> Iterable[str]:
    for path in paths:
        for line in lines_of(f"UrlBlocklistFilter.{parameter}", path):
            entry = line.decode("utf-8", "replace").strip()
            if entry and not entry.startswith("#"):
                yield entry


def _normalized(parameter: str, given: Lists) -> frozenset[str]:
    found = (_NO_WORD.sub("", entry.lower()) for entry in _entries(parameter, _paths(given)))
    return frozenset(word for word in found if word)
