# SPDX-License-Identifier: Apache-2.0
"""Lists of web sites, addresses and words that no record's address may have."""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.batch import DocumentBatch
from thresher.core.filesystem import file_info
from thresher.core.resources import NodeInfo, WorkerMetadata
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.text.chain import field_name
from thresher.stages.text.list_file import lines_of

if TYPE_CHECKING:
    from thresher.stages.text.index_file import Index

Lists = str | list[str] | None
"""A file or several, one entry per line, plain or packed."""

REASONS = ("domain", "url", "banned-word", "soft-word", "banned-subword")
"""Why records are dropped; the first that is true of one counts."""
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NO_WORD = re.compile(r"[^a-z0-9]+")


class UrlBlocklistFilter(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drop records whose web address is on a list, or holds words from one.

    Reasons, in this order: `domain` (the host or a domain above it is listed), `url` (the address is listed, whatever
    its scheme, fragment and last slash), `banned-word` (a listed word between characters that are no letters or
    digits), `soft-word` (at least `soft_word_threshold` different ones of another list), `banned-subword` (a listed
    word anywhere, even across such characters). Letters are compared in lower case, except in paths of `url`.
    Domains and addresses are kept as hashes of 64 bits in a file that all workers share: 8 bytes for each.
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
        """Each list is a file or several; lines that start with `#` are remarks. Records without an address stay."""
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
        self._index: Index | None = None
        self._words: _Words | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        """The column that holds the address."""
        return ["data"], [self.url_field]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        """Make the file of hashes, unless it is there."""
        self._hashes()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        """Map the file, and read the short lists."""
        self._index = self._hashes()
        self._words = _Words(self.banned_words, self.soft_banned_words, self.banned_subwords, self.soft_word_threshold)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Drop the records with a reason."""
        reasons = self.reasons([url if isinstance(url, str) else "" for url in task.values(self.url_field)])
        for reason in REASONS:
            gone = {row: found[1] for row, found in enumerate(reasons) if found is not None and found[0] == reason}
            if gone:
                task = task.drop(list(gone), reason, list(gone.values()))
                reasons = [found for row, found in enumerate(reasons) if row not in gone]
        return task

    def reasons(self, urls: Sequence[str]) -> list[tuple[str, str] | None]:
        """For each address why it is dropped (the reason, and what was found), or `None`."""
        if self._index is None or self._words is None:
            self.setup()
        assert self._index is not None
        assert self._words is not None
        hosts = [host_of(url) for url in urls]
        found: list[tuple[str, str] | None] = [None] * len(urls)
        above = [(row, name) for row, host in enumerate(hosts) for name in _and_above(host)]
        for row, name in _listed(self._index.arrays["domains"], above):
            found[row] = found[row] or ("domain", name)
        whole = [(row, plain_url(url)) for row, url in enumerate(urls) if url and found[row] is None]
        for row, name in _listed(self._index.arrays["urls"], whole):
            found[row] = ("url", name)
        return [was or self._words.reason(url) if url else was for was, url in zip(found, urls, strict=True)]

    def _hashes(self) -> Index:
        from thresher.stages.text.index_file import Index, cached_index

        files = {"domains": _paths(self.domains), "urls": _paths(self.urls)}
        made_of = {kind: [list(file_info(path)) for path in paths] for kind, paths in files.items()}

        def build() -> Index:
            return Index(
                {},
                {
                    "domains": _hash_array(domain_entry(entry) for entry in _entries("domains", files["domains"])),
                    "urls": _hash_array(plain_url(entry) for entry in _entries("urls", files["urls"])),
                },
            )

        return cached_index("url-blocklist", made_of, build)


class _Words:
    """The short lists."""

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
    """The host of an address in lower case; an address may come without its scheme."""
    rest = _SCHEME.sub("", url.strip(), count=1) if "://" in url else url.strip()
    place = re.split(r"[/?#\\]", rest.lstrip("/"), maxsplit=1)[0].rpartition("@")[2]
    if place.startswith("["):
        return place.partition("]")[0].lower() + "]"
    return place.partition(":")[0].rstrip(".").lower()


def plain_url(url: str) -> str:
    """An address without scheme, user, fragment and last slash, its host in lower case."""
    rest = (_SCHEME.sub("", url.strip(), count=1) if "://" in url else url.strip()).lstrip("/")
    rest = rest.partition("#")[0]
    cut = re.search(r"[/?\\]", rest)
    place, path = (rest, "") if cut is None else (rest[: cut.start()], rest[cut.start() :])
    return place.rpartition("@")[2].lower() + path.rstrip("/")


def domain_entry(entry: str) -> str:
    """A line of a list of domains: `*.` and a dot before it mean nothing, a whole address means its host."""
    return host_of(entry.removeprefix("*.").removeprefix("."))


def _and_above(host: str) -> list[str]:
    """A host and the domains that it is in: `a.b.c`, `b.c`, `c`."""
    parts = host.split(".") if host and not host.startswith("[") else [host] if host else []
    return [".".join(parts[n:]) for n in range(len(parts))]


def _listed(hashes: Any, names: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """The rows and names whose hash is in the sorted array."""
    import numpy as np

    if not names or not len(hashes):
        return []
    wanted = np.array([_hash(name) for _, name in names], dtype=np.uint64)
    places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    return [names[n] for n in np.flatnonzero(hashes[places] == wanted).tolist()]


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
