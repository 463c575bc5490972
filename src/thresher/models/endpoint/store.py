# SPDX-License-Identifier: Apache-2.0
"""Answers on disk, so that no request is paid twice: an SQLite file that several processes may use at a time.

A process claims a request before it sends it and stores the answer before anyone uses it. Claims of processes that are
gone are void. Claims also reserve the most that a request may cost, so that requests in flight cannot exceed a budget.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import itertools
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from thresher.core.files.filesystem import is_url
from thresher.core.resources import STAGE_FILES
from thresher.errors import RunFailedError
from thresher.models.endpoint.budget import Budget, Usage
from thresher.models.endpoint.request import Answer

CACHE_FILE = "answers.sqlite"
"""Name of the file with answers in a run folder."""
BEAT_S = 20.0
"""Time between two signs of life of a process, for those on other machines."""
_GONE_S = 6 * BEAT_S
_BUSY_MS = 60_000
_NUMBERS = itertools.count()
"""Tell the stores of one process apart."""
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
    key BLOB PRIMARY KEY, owner TEXT NOT NULL, account TEXT NOT NULL, tokens INTEGER NOT NULL, cost INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS owners (owner TEXT PRIMARY KEY, seen REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    account TEXT PRIMARY KEY, requests INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    cost INTEGER NOT NULL
) WITHOUT ROWID;
"""


class Refusal(enum.Enum):
    """Why a request may not be sent now."""

    ASKED = "another process has sent it"
    FULL = "the budget is reserved for requests in flight"
    SPENT = "the budget is spent"


class Reserve(NamedTuple):
    """The most that a request may use."""

    tokens: int
    """Tokens of the request and its answer."""
    cost: int
    """Cost in millionths."""


class AnswerStore:
    """Stored answers and claims. Each method is one transaction, unless several are called `together`."""

    def __init__(self, path: str | None, account: str, budget: Budget) -> None:
        """`path`: the file, which is made with its folder; `None` keeps answers in memory. `account`: what the budget
        is for, such as a stage of a run."""
        self.path = path
        self._account = account
        self._budget = budget
        self._owner = f"{os.uname().nodename}|{os.getpid()}|{_start_time(os.getpid())}|{next(_NUMBERS)}"
        if path is not None:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with self._errors():
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None, timeout=_BUSY_MS / 1000)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            with self._transaction():
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._void_claims()
        self.beat()

    def close(self) -> None:
        """Give up the claims of this process, and close the file."""
        with self._errors():
            with self._transaction():
                self._db.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
                self._db.execute("DELETE FROM owners WHERE owner = ?", (self._owner,))
            self._db.close()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make one transaction of all calls within the block, which costs little more than one call."""
        with self._errors(), self._transaction():
            yield

    def claim(self, key: bytes, most: Reserve) -> Answer | Refusal | None:
        """Return the stored answer, or why the request may not be sent now; `None`: this process is to send it."""
        with self._errors(), self._transaction():
            if (known := self._answer(key)) is not None:
                return known
            holder = self._db.execute("SELECT owner FROM claims WHERE key = ?", (key,)).fetchone()
            if holder is not None and holder[0] != self._owner and not self._is_gone(holder[0]):
                return Refusal.ASKED
            if self._budget.is_limited and (refusal := self._refusal(most)) is not None:
                return refusal
            self._db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", (key, self._owner, self._account, *most)
            )
            return None

    def put(self, key: bytes, answer: Answer, cost: int) -> None:
        """Store the answer to a claimed request, and charge the budget."""
        with self._errors(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, msgspec.msgpack.encode(answer)))
            self._db.execute("DELETE FROM claims WHERE key = ?", (key,))
            self._db.execute(
                "INSERT INTO spent VALUES (?, 1, ?, ?, ?) ON CONFLICT (account) DO UPDATE SET requests = requests + 1, "
                "input_tokens = input_tokens + excluded.input_tokens, "
                "output_tokens = output_tokens + excluded.output_tokens, cost = cost + excluded.cost",
                (self._account, answer.input_tokens, answer.output_tokens, cost),
            )

    def release(self, key: bytes) -> None:
        """Give up a claim: the request failed."""
        with self._errors(), self._transaction():
            self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Remove answers that cannot be used, so that a retry asks again."""
        with self._errors(), self._transaction():
            self._db.executemany("DELETE FROM answers WHERE key = ?", [(key,) for key in keys])

    def spent(self) -> Usage:
        """Return what the account has paid, over all processes and attempts."""
        with self._errors():
            row = self._db.execute(
                "SELECT requests, input_tokens, output_tokens, cost FROM spent WHERE account = ?", (self._account,)
            ).fetchone()
        if row is None:
            return Usage()
        return Usage(requests=row[0], input_tokens=row[1], output_tokens=row[2], cost=row[3])

    def beat(self) -> None:
        """Show that this process is alive, and void the claims of those that are not."""
        with self._errors(), self._transaction():
            self._db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?)", (self._owner, time.time()))
            self._void_claims()

    def _answer(self, key: bytes) -> Answer | None:
        row = self._db.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else msgspec.msgpack.decode(row[0], type=Answer)

    def _refusal(self, most: Reserve) -> Refusal | None:
        spent = self.spent()
        used = Reserve(spent.input_tokens + spent.output_tokens, spent.cost)
        tokens, cost = self._db.execute(
            "SELECT TOTAL(tokens), TOTAL(cost) FROM claims WHERE account = ?", (self._account,)
        ).fetchone()
        if self._budget.has_room(used.tokens + int(tokens) + most.tokens, used.cost + int(cost) + most.cost):
            return None
        return Refusal.FULL if tokens else Refusal.SPENT

    def _void_claims(self) -> None:
        for (owner,) in self._db.execute("SELECT DISTINCT owner FROM claims").fetchall():
            if self._is_gone(owner):
                self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
                self._db.execute("DELETE FROM owners WHERE owner = ?", (owner,))

    def _is_gone(self, owner: str) -> bool:
        """Return True if a process has ended: known on the same machine, else assumed without a sign of life."""
        host, pid, started, _ = owner.split("|")
        if host == os.uname().nodename:
            return _start_time(int(pid)) != started
        row = self._db.execute("SELECT seen FROM owners WHERE owner = ?", (owner,)).fetchone()
        return row is None or time.time() - row[0] > _GONE_S

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RunFailedError(
                f"answers cannot be stored in {self.path or 'memory'}: {error}. It must be a file on a local disk with "
                "room; name another one with cache_path"
            ) from error


def _start_time(pid: int) -> str:
    """Return when a process of this machine started, in clock ticks; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def cache_file(run_dir: str | None) -> str | None:
    """Return the file with the answers of a run: in its folder `stages`; in the user's cache if that is at a URL."""
    if run_dir is None:
        return None
    if not is_url(run_dir):
        return os.path.join(run_dir, STAGE_FILES, CACHE_FILE)
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(folder, "thresher", "answers", f"{hashlib.sha256(run_dir.encode()).hexdigest()[:16]}.sqlite")
