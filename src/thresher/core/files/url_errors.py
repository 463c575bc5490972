# SPDX-License-Identifier: Apache-2.0
"""Explain the errors of remote file systems in messages that say what to do.

Each library below fsspec has its own errors, and fsspec hides some: its HTTP file system reports a missing file
whatever the server answered. So all causes of an error are examined. Classes are matched by name, which needs no import
of the libraries that define them.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from thresher.credentials import redacted, without_credentials

_NO_CREDENTIALS = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
        "SSOTokenLoadError",
        "ProfileNotFound",
        "DefaultCredentialsError",
        "RefreshError",
        "CredentialUnavailableError",
    }
)
_NO_CONNECTION = frozenset(
    {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "ProxyConnectionError",
        "ClientConnectionError",
        "ConnectionError",
        "gaierror",
        "herror",
        "TimeoutError",
        "SSLError",
    }
)
_PACKAGES = {
    "s3": "thresher[s3]",
    "s3a": "thresher[s3]",
    "http": "aiohttp",
    "https": "aiohttp",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "adl": "adlfs",
    "hdfs": "pyarrow",
    "arrow_hdfs": "pyarrow",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "smb": "smbprotocol",
    "hf": "huggingface_hub",
    "oss": "ossfs",
    "oci": "ocifs",
    "ocilake": "ocifs",
    "tos": "tosfs",
    "tosfs": "tosfs",
    "webdav": "webdav4[fsspec]",
    "webhdfs": "requests",
    "github": "requests",
    "gist": "requests",
    "dbfs": "requests",
    "git": "pygit2",
    "gdrive": "gdrive_fsspec",
    "dropbox": "dropboxdrivefs",
    "box": "boxfs",
    "dvc": "dvc",
    "lakefs": "lakefs-spec",
    "root": "fsspec-xrootd",
    "wandb": "wandbfs",
    "libarchive": "libarchive-c",
    "dask": "distributed",
    "jlab": "requests",
    "jupyter": "requests",
    "asynclocal": "morefs[asynclocalfs]",
}
"""Package to install for each scheme that fsspec knows and the standard library does not serve."""


def missing_package(url: str, error: ImportError) -> str:
    """Return the message for a missing package that serves the scheme of `url`."""
    scheme = re.split(r"::|://", url, maxsplit=1)[0]
    package = _PACKAGES.get(scheme.lower())
    if package is None:
        return f"{url}: {error}. Install the package that fsspec needs for {scheme}:// URLs"
    return f"{url}: {scheme}:// URLs need a package that is not installed: pip install '{package}'"


def port_fault(url: str) -> str:
    """Return the message for an invalid port in a web address; empty if it is valid. fsspec reports such a file as
    missing."""
    for link in url.split("::"):
        parts = urlsplit(without_credentials(link))
        if parts.scheme.lower() in ("http", "https"):
            try:
                _ = parts.port
            except ValueError:
                return (
                    f"{without_credentials(url)}: nothing can answer at {parts.netloc}, because a port is a number "
                    "from 0 to 65535; check the address"
                )
    return ""


def url_refusal(url: str, error: BaseException) -> str | None:
    """Return the message for a known error of `url`; `None` if the error is unknown."""
    for found in _with_causes(error):
        names = {kind.__name__ for kind in type(found).__mro__}
        status = _http_status(found)
        if names & _NO_CREDENTIALS:
            return (
                f"{url}: no credentials were found ({_short(found)}). Set them in the environment (for S3 "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or in storage_options (key and secret; anon: true for a "
                "public bucket)"
            )
        if status in (401, 403, 407):
            return (
                f"{url}: the server refuses access (HTTP {status}). Give a login or key that may do this, in the URL, "
                "in storage_options or in the environment"
            )
        if status == 429 or status >= 500:
            return f"{url}: the server answers with an error (HTTP {status}: {_short(found)}). Try again later"
        if names & _NO_CONNECTION or _is_refused_endpoint(found):
            return (
                f"{url}: cannot connect to the server ({_short(found)}). Check the address, the network, and "
                "endpoint_url in storage_options if there is one"
            )
    return None


def is_unreachable(error: BaseException) -> bool:
    """Return True if no connection was made: a wrong address, or a server that is down."""
    return any(
        type(found).__name__ in ("EndpointConnectionError", "gaierror") or _is_refused_endpoint(found)
        for found in _with_causes(error)
    )


def is_missing(error: BaseException) -> bool:
    """Return True if the error means that nothing is there, and no cause shows that the server gave no answer."""
    return isinstance(error, FileNotFoundError) and url_refusal("", error) is None


def any_refusal(url: str, error: BaseException) -> str:
    """Return the message for any error of `url`."""
    return url_refusal(url, error) or (
        f"{url} cannot be used: {type(error).__name__}: {_short(error)}. Check the URL and its storage_options"
    )


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _http_status(error: BaseException) -> int:
    status = getattr(error, "status", None)
    if isinstance(status, int):  # aiohttp
        return status
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        answer = response.get("ResponseMetadata")
        found = answer.get("HTTPStatusCode") if isinstance(answer, dict) else None
    else:  # requests
        found = getattr(response, "status_code", None)
    return found if isinstance(found, int) else 0


def _is_refused_endpoint(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
        return True
    return isinstance(error, ValueError) and "Invalid endpoint" in str(error)


def _short(error: BaseException) -> str:
    return redacted(" ".join(str(error).split()))[:200] or type(error).__name__
