# SPDX-License-Identifier: Apache-2.0
"""A folder in an S3 bucket or an S3-compatible store.

A unit's file is put at its final key only if the key is free (`If-None-Match: *`), in one put or as a multipart upload
that is completed under that condition. The metadata of each object holds the run and attempt that wrote it and the
SHA-256 of its bytes. So when a put is refused or its answer is lost, the object at the key shows what happened.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from thresher.ledger.stores.errors import as_os_error, backoff_waits, classify
from thresher.ledger.stores.store import Owner, VersionedFile
from thresher.ledger.stores.url_store import UrlStore, foreign_object

PART_BYTES = 16 * 2**20
"""Part size for uploads of larger files, and the memory that an upload takes."""
_MOST_PARTS = 9_000
_RUN, _ATTEMPT, _SHA256 = "thresher-run", "thresher-attempt", "thresher-sha256"
_ABSENT = {"IfNoneMatch": "*"}


class _Object(NamedTuple):
    """An existing object."""

    etag: str
    """ETag, as sent by the server."""
    nbytes: int
    """Size of the object."""
    run_id: str
    """Run that wrote it; empty if it was not written by a run."""
    attempt: int
    """Attempt of that run."""
    sha256: str
    """SHA-256 recorded by the writer; empty if there is none."""


class S3Store(UrlStore):
    """A folder in a bucket."""

    def __init__(self, root: str, storage_options: dict[str, Any], conditional: bool = True) -> None:
        super().__init__(root, storage_options, conditional)
        self._bucket, self._prefix, _ = self._fs.split_path(self._base)

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}/{name}" if self._prefix else name}

    def _bucket_name(self) -> str:
        return str(self._bucket)

    def _root_exists(self) -> bool:
        try:
            self._fs.call_s3("head_bucket", Bucket=self._bucket)
        except FileNotFoundError:
            return False
        except PermissionError:
            # Permission to put objects does not imply permission to query the bucket: the first put shows.
            return True
        return True

    def make_folder(self, folder: str = "") -> None:
        """Do nothing: keys need no folders, and fsspec would create the bucket."""

    # -- small objects ------------------------------------------------------------------------------------------------

    def find(self, name: str) -> VersionedFile | None:
        """Return the content of an object, its ETag, and its age by the clock of the store."""
        try:
            answer, content = self._call(self._get, name)
        except FileNotFoundError:
            return None
        return VersionedFile(content, str(answer["ETag"]), _age_s(answer))

    def _get(self, name: str) -> tuple[dict[str, Any], bytes]:
        from fsspec.asyn import sync

        async def get() -> tuple[dict[str, Any], bytes]:
            answer = await self._fs._call_s3("get_object", **self._key(name))
            async with answer["Body"] as body:
                return answer, await body.read()

        found: tuple[dict[str, Any], bytes] = sync(self._fs.loop, get)
        return found

    def read(self, name: str) -> bytes | None:
        """Return the content of an object, bypassing all caches."""
        found = self.find(name)
        return None if found is None else found.data

    def exists(self, name: str) -> bool:
        """Return True if there is such an object."""
        return self._look(name) is not None

    def _create_once(self, name: str, data: bytes) -> None:
        self._fs.call_s3("put_object", **self._key(name), Body=data, **_ABSENT)

    def replace(self, name: str, data: bytes, version: str) -> bool:
        """Put an object if the current one has the given version (`If-Match`)."""
        if not self.conditional:
            return super().replace(name, data, version)
        try:
            self._call(self._fs.call_s3, "put_object", **self._key(name), Body=data, IfMatch=version)
        except Exception as error:
            if classify(error) == "unsupported":
                self.conditional = False
                return super().replace(name, data, version)
            if classify(error) not in ("exists", "gone"):
                raise
            return self.read(name) == data  # the answer to an earlier attempt may have been lost
        return True

    # -- files of units -----------------------------------------------------------------------------------------------

    def _publish(self, source: str, name: str, owner: Owner) -> None:
        """Put a file at its key. An existing object is replaced only if an older attempt of the same run wrote it.

        An incomplete upload is aborted on any error; that of a killed process is aborted by the next attempt.
        """
        condition = _ABSENT
        last: Exception | None = None
        for wait_s in (*backoff_waits(), 0.0):
            try:
                self._put_once(source, name, owner, condition)
                return
            except Exception as error:
                error_class = classify(error)
                if error_class == "unsupported":
                    condition, self.conditional = {}, False
                    continue
                if error_class == "refused" or (isinstance(error, FileNotFoundError) and not os.path.exists(source)):
                    raise
                last = error
            found = self._look(name)
            if found is not None and self._is_this(found, source, name, owner):
                return
            condition = _ABSENT if found is None else self._condition_to_replace(found, name, owner)
            if error_class != "exists":
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
                    answer = self._call(self._fs.call_s3, "upload_part", **self._key(name), **part, Body=chunk)
                    parts.append({"PartNumber": len(parts) + 1, "ETag": answer["ETag"]})
                done = {"UploadId": upload, "MultipartUpload": {"Parts": parts}}
                self._fs.call_s3("complete_multipart_upload", **self._key(name), **done, **condition)
            except BaseException:
                # This also runs if the answer to a completion was lost: then there is nothing to abort.
                self._abort(self._key(name)["Key"], upload)
                raise

    def _look(self, name: str) -> _Object | None:
        try:
            answer = self._call(self._fs.call_s3, "head_object", **self._key(name))
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
        """Return True if the object has the bytes of `source`, whoever put it."""
        if found.nbytes != os.path.getsize(source):
            return False
        return (found.sha256 or self._sha256(name)) == owner.sha256

    def _condition_to_replace(self, found: _Object, name: str, owner: Owner) -> dict[str, str]:
        """Return the condition for replacing an object that this run put and never recorded; refuse any other object.

        Its bytes can differ only if a stage is not deterministic or was changed in between.
        """
        url = f"{self.root}/{name}"
        if found.run_id != owner.run_id:
            raise foreign_object(url, f"of run {found.run_id}" if found.run_id else "that this run did not write")
        if found.attempt > owner.attempt:
            raise foreign_object(url, f"of attempt {found.attempt} of this run, and this is attempt {owner.attempt}")
        return {"IfMatch": found.etag}

    def withdraw(self, name: str, owner: Owner) -> None:
        """Remove an object that this attempt or an earlier one of this run put."""
        found = self._look(name)
        if found is not None and found.run_id == owner.run_id and found.attempt <= owner.attempt:
            self.remove(name)

    # -- uploads that were begun and never finished -------------------------------------------------------------------

    def abort_uploads(self, wanted: Callable[[str], bool]) -> None:
        """Abort the unfinished uploads below this folder whose names are `wanted`."""
        # Without permission to list uploads, a lifecycle rule of the bucket must remove them.
        with contextlib.suppress(PermissionError, NotImplementedError):
            for key, upload in list(self._uploads()):
                if wanted(key.removeprefix(f"{self._prefix}/" if self._prefix else "")):
                    self._abort(key, upload)

    def _uploads(self) -> Iterator[tuple[str, str]]:
        marker: dict[str, str] = {}
        while True:
            prefix = f"{self._prefix}/" if self._prefix else ""
            query = {"Bucket": self._bucket, "Prefix": prefix, **marker}
            answer = self._call(self._fs.call_s3, "list_multipart_uploads", **query)
            for upload in answer.get("Uploads", ()):
                if upload["Key"].startswith(prefix):
                    yield upload["Key"], upload["UploadId"]
            if not answer.get("IsTruncated"):
                return
            marker = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}

    def _abort(self, key: str, upload: str) -> None:
        with contextlib.suppress(Exception):  # the next attempt aborts what is left; the original error matters
            self._call(self._fs.call_s3, "abort_multipart_upload", Bucket=self._bucket, Key=key, UploadId=upload)


def _age_s(answer: dict[str, Any]) -> float | None:
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    modified = answer.get("LastModified")
    if not date or modified is None:
        return None
    return float((parsedate_to_datetime(date) - modified).total_seconds())
