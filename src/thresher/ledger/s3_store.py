# SPDX-License-Identifier: Apache-2.0
"""A folder in an S3 bucket, or in a store that speaks like one.

A unit's file is put at its final key only if nothing is there (`If-None-Match: *`), in one put or as a multipart upload
whose completion has that condition. Each object says in its metadata which run and attempt wrote it and what the
SHA-256 of its bytes is. So when a put is refused, or its answer is lost, what lies at the key tells what happened.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from thresher.ledger.patience import as_os_error, meaning, waits
from thresher.ledger.store import Found, Owner
from thresher.ledger.url_store import UrlStore, foreign_object

PART_BYTES = 16 * 2**20
"""Larger files are uploaded in parts of this size; it is what a worker holds in memory of a file that it uploads."""
_MOST_PARTS = 9_000
_RUN, _ATTEMPT, _SHA256 = "thresher-run", "thresher-attempt", "thresher-sha256"
_ABSENT = {"IfNoneMatch": "*"}


class _Object(NamedTuple):
    """What lies at a key."""

    etag: str
    """Its version, as the server writes it."""
    nbytes: int
    """Its size."""
    run_id: str
    """The run that wrote it; empty if that was none of ours."""
    attempt: int
    """The attempt of that run."""
    sha256: str
    """Of its bytes, as its writer said; empty if he did not."""


class S3Store(UrlStore):
    """A folder in a bucket."""

    def __init__(self, root: str, storage_options: dict[str, Any], conditional: bool = True) -> None:
        super().__init__(root, storage_options, conditional)
        self._bucket, self._prefix, _ = self._fs.split_path(self._base)

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}" if self._prefix else name}

    # -- small objects ------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Found | None:
        """The content of an object, its ETag, and its age by the clock of the store."""
        try:
            answer, content = self._ask(self._get, name)
        except FileNotFoundError:
            return None
        return Found(content, str(answer["ETag"]), _age_s(answer))

    def _get(self, name: str) -> tuple[dict[str, Any], bytes]:
        from fsspec.asyn import sync

        async def get() -> tuple[dict[str, Any], bytes]:
            answer = await self._fs._call_s3("get_object", **self._key(name))
            async with answer["Body"] as body:
                return answer, await body.read()

        found: tuple[dict[str, Any], bytes] = sync(self._fs.loop, get)
        return found

    def read(self, name: str) -> bytes | None:
        """The content of an object, past every cache."""
        found = self.find(name)
        return None if found is None else found.data

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        return self._look(name) is not None

    def _create_once(self, name: str, data: bytes) -> None:
        self._fs.call_s3("put_object", **self._key(name), Body=data, **_ABSENT)

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Put an object in place of one version of it (`If-Match`)."""
        if not self.conditional:
            return super().replace(name, data, version)
        try:
            self._ask(self._fs.call_s3, "put_object", **self._key(name), Body=data, IfMatch=version)
        except Exception as error:
            if meaning(error) == "unsupported":
                self.conditional = False
                return super().replace(name, data, version)
            if meaning(error) not in ("exists", "gone"):
                raise
            return self.read(name) == data  # the answer to an earlier try may have been lost
        return True

    # -- files of units -----------------------------------------------------------------------------------------------

    def _publish(self, source: str, name: str, owner: Owner) -> None:
        """Put a file at its key. What is there already is looked at, and replaced only if it is an older one of ours.

        An upload that was not completed is aborted whatever happens; a process that is killed leaves it to the next.
        """
        condition = _ABSENT
        last: Exception | None = None
        for wait_s in (*waits(), 0.0):
            try:
                self._put_once(source, name, owner, condition)
                return
            except Exception as error:
                said = meaning(error)
                if said == "unsupported":
                    condition, self.conditional = {}, False
                    continue
                if said == "refused" or (isinstance(error, FileNotFoundError) and not os.path.exists(source)):
                    raise
                last = error
            found = self._look(name)
            if found is not None and self._is_this(found, source, name, owner):
                return
            condition = _ABSENT if found is None else self._condition_to_replace(found, name, owner)
            if said != "exists":
                time.sleep(wait_s)
        assert last is not None, "only a failed put leads here"
        raise as_os_error(last) from last

    def _put_once(self, source: str, name: str, owner: Owner, condition: dict[str, str]) -> None:
        marks = {_RUN: owner.run_id, _ATTEMPT: str(owner.attempt), _SHA256: owner.sha256}
        nbytes = os.path.getsize(source)
        with open(source, "rb") as file:
            if nbytes <= PART_BYTES:
                self._fs.call_s3("put_object", **self._key(name), Body=file.read(), Metadata=marks, **condition)
                return
            upload = self._fs.call_s3("create_multipart_upload", **self._key(name), Metadata=marks)["UploadId"]
            try:
                parts: list[dict[str, Any]] = []
                while chunk := file.read(max(PART_BYTES, -(-nbytes // _MOST_PARTS))):
                    part = {"UploadId": upload, "PartNumber": len(parts) + 1}
                    answer = self._ask(self._fs.call_s3, "upload_part", **self._key(name), **part, Body=chunk)
                    parts.append({"PartNumber": len(parts) + 1, "ETag": answer["ETag"]})
                done = {"UploadId": upload, "MultipartUpload": {"Parts": parts}}
                self._fs.call_s3("complete_multipart_upload", **self._key(name), **done, **condition)
            except BaseException:
                # Also after a completion whose answer was lost: then there is nothing left to abort.
                self._abort(self._key(name)["Key"], upload)
                raise

    def _look(self, name: str) -> _Object | None:
        try:
            answer = self._ask(self._fs.call_s3, "head_object", **self._key(name))
        except FileNotFoundError:
            return None
        marks = {key.lower(): value for key, value in answer.get("Metadata", {}).items()}
        attempt = str(marks.get(_ATTEMPT, ""))
        return _Object(
            str(answer["ETag"]),
            int(answer["ContentLength"]),
            str(marks.get(_RUN, "")),
            int(attempt) if attempt.isdigit() else 0,
            str(marks.get(_SHA256, "")),
        )

    def _is_this(self, found: _Object, source: str, name: str, owner: Owner) -> bool:
        """Whether the bytes are there that were to be put, whoever put them."""
        if found.nbytes != os.path.getsize(source):
            return False
        return (found.sha256 or self._sha256(name)) == owner.sha256

    def _condition_to_replace(self, found: _Object, name: str, owner: Owner) -> dict[str, str]:
        """An object that was put and never recorded may be replaced by its own run: its bytes can differ only where a
        stage is not deterministic or was changed in between."""
        url = f"{self.root}/{name}"
        if found.run_id != owner.run_id:
            raise foreign_object(url, f"of run {found.run_id}" if found.run_id else "that this run did not write")
        if found.attempt > owner.attempt:
            raise foreign_object(url, f"of attempt {found.attempt} of this run, and this is attempt {owner.attempt}")
        return {"IfMatch": found.etag}

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove an object that an attempt of this run put, up to this one."""
        found = self._look(name)
        if found is not None and found.run_id == owner.run_id and found.attempt <= owner.attempt:
            self.remove(name)

    # -- uploads that were begun and never finished -------------------------------------------------------------------

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Abort the unfinished uploads below this folder whose names are `wanted`."""
        # Who may put objects may not always list uploads; then a rule of the bucket must clear them.
        with contextlib.suppress(PermissionError, NotImplementedError):
            for key, upload in list(self._uploads()):
                if wanted(key.removeprefix(f"{self._prefix}/" if self._prefix else "")):
                    self._abort(key, upload)

    def _uploads(self) -> Iterator[tuple[str, str]]:
        marker: dict[str, str] = {}
        while True:
            prefix = f"{self._prefix}/" if self._prefix else ""
            asked = {"Bucket": self._bucket, "Prefix": prefix, **marker}
            answer = self._ask(self._fs.call_s3, "list_multipart_uploads", **asked)
            for upload in answer.get("Uploads", ()):
                if upload["Key"].startswith(prefix):
                    yield upload["Key"], upload["UploadId"]
            if not answer.get("IsTruncated"):
                return
            marker = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def _abort(self, key: str, upload: str) -> None:
        with contextlib.suppress(Exception):  # the next attempt finds what is left; the error that led here counts
            self._ask(self._fs.call_s3, "abort_multipart_upload", Bucket=self._bucket, Key=key, UploadId=upload)


def _age_s(answer: dict[str, Any]) -> float | None:
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    modified = answer.get("LastModified")
    if not date or modified is None:
        return None
    return float((parsedate_to_datetime(date) - modified).total_seconds())
