# SPDX-License-Identifier: Apache-2.0
"""Separate credentials from URLs and storage options, and redact them from all text.

A URL such as `http://user:password@host/a.jsonl?token=…` enters through a parameter of a reader or writer. There it is
split: `http://host/a.jsonl` names the file from then on, and the credentials travel inside the storage options to where
the file is opened. Messages and tracebacks of other libraries are redacted before they are written or shown.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from thresher.stage_errors import error_report, error_text

HIDDEN = "***"
"""Replacement text for a credential."""

_URL_SECRETS = "thresher_url_secrets"
"""Storage option that carries the credentials taken from URLs. It is never passed to fsspec."""
_NOT_A_LOGIN = frozenset({"abfs", "abfss", "wasb", "wasbs", "az", "adl", "github", "hf", "file"})
"""Schemes where the part before an `@` is not a login but a container or a repository."""
_LOGIN_IS_KEY = frozenset({"s3", "s3a"})
"""Schemes whose login is an access key and its secret. fsspec accepts these only as options."""
_SECRET_NAME = re.compile(
    r"secret|token|passw|pwd|credential|signature|connection_string|auth(?!or(?!iz))|jwt|session|(?:^|[-_.])(?:sig|sas)$"
    r"|^key$|[-_.]?(?:access|api|account|private|encryption|ssh)[-_.]?key|key[-_.]?(?:id|pair|secret)|^x-(?:amz|goog)-",
    re.IGNORECASE,
)
"""Names of options and query parameters whose values are credentials."""
_SIGNED_WITH = re.compile(r"expires|policy|googleaccessid|s[vsrpet]|srt|spr|sip|sk(?:oid|tid|t|e|s|v)", re.IGNORECASE)
"""Query parameters that accompany a signature and change with it."""
_ENVIRONMENT = re.compile(r"SECRET|TOKEN|PASSW|API_?KEY|ACCESS_?KEY|ACCOUNT_?KEY|SAS|CONNECTION_STRING")
_LOGIN_IN_TEXT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://[^\s/?#\"'<>]*@")
_KEY_IN_TEXT = re.compile(r"\b(s3a?)://[^\s/?#\"'<>:@]+:[^\s\"'<>@]*@")
_PARAMETER_IN_TEXT = re.compile(r"([?&;])([A-Za-z0-9_.%-]+)=([^&;\s\"'<>)\]}]+)")
_SHORTEST = 6
"""Minimum length of values to redact. Shorter ones occur in too many ordinary words."""

_known: set[str] = set()
_known_pattern: re.Pattern[str] | None = None


class _Split(NamedTuple):
    """A URL without its credentials, and the credentials."""

    public: str
    """The URL that names the file."""
    login: str
    """The part before the `@`, as written."""
    query: str
    """Query parameters that are credentials, as written."""


# -- URLs -------------------------------------------------------------------------------------------------------------


def split_urls(
    what: str, urls: Sequence[str], storage_options: dict[str, Any] | None, refuse: Callable[[str], Exception]
) -> tuple[list[str], dict[str, Any] | None]:
    """Return `urls` without credentials, and storage options that carry the credentials.

    If two URLs contradict each other, raise the error that `refuse` creates from a message.
    """
    logins: dict[str, str] = {}
    queries: dict[str, str] = {}
    public = []
    for url in urls:
        links = [_split(link) for link in url.split("::")]
        for link in links:
            of_login = (logins, _authority(link.public), link.login)
            of_query = (queries, _fixed_part(link.public), link.query)
            for found, key, value in (of_login, of_query):
                if value and found.setdefault(key, value) != value:
                    raise refuse(f"{what}: {key} is given with two different logins or signatures; read one per run")
        public.append("::".join(link.public for link in links))
    if not logins and not queries:
        return public, storage_options
    options = {**(storage_options or {}), _URL_SECRETS: {"logins": logins, "queries": queries}}
    remember(options)
    return public, options


def with_credentials(url: str, storage_options: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Return the URL and the options for opening `url`, and redact the secrets in them from now on."""
    options = dict(storage_options or {})
    remember(options)
    _remember_environment()
    hidden = options.pop(_URL_SECRETS, None) or {"logins": {}, "queries": {}}
    links = []
    for link in url.split("::"):
        scheme, mark, rest = link.partition("://")
        login = hidden["logins"].get(_authority(link), "")
        if login and scheme.lower() in _LOGIN_IS_KEY:
            key, _, secret = login.partition(":")
            options = {"key": unquote(key), "secret": unquote(secret)} | options
            login = ""
        query = _query_for(link, hidden["queries"])
        full = f"{scheme}{mark}{login}{'@' * bool(login)}{rest}"
        links.append(full + (("&" if "?" in full else "?") + query if query else ""))
    return "::".join(links), options


def has_credentials(url: str) -> bool:
    """Return True if `url` holds a login or a signature."""
    return any(link.login or link.query for link in map(_split, url.split("::")))


def without_credentials(url: str) -> str:
    """Return `url` without its login and signature."""
    return "::".join(_split(link).public for link in url.split("::"))


def _split(link: str) -> _Split:
    scheme, mark, rest = link.partition("://")
    if not mark:
        return _Split(link, "", "")
    login = ""
    if scheme.lower() not in _NOT_A_LOGIN:
        login, rest = _split_login(scheme.lower(), rest)
    path, question, query = rest.partition("?")
    named = [(part.partition("=")[0].lower(), part) for part in query.split("&")] if "=" in query else []
    secret = [part for name, part in named if _SECRET_NAME.search(name) and "=" in part]
    if not secret:
        return _Split(f"{scheme}://{rest}", login, "")
    hidden = [part for name, part in named if part in secret or _SIGNED_WITH.fullmatch(name)]
    shown = "&".join(part for _, part in named if part not in hidden)
    return _Split(f"{scheme}://{path}{question if shown else ''}{shown}", login, "&".join(hidden))


def _split_login(scheme: str, rest: str) -> tuple[str, str]:
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        login = authority.rpartition("@")[0]
    elif scheme in _LOGIN_IS_KEY and ":" in authority and "@" in rest:
        login = rest.partition("@")[0]  # S3 secrets contain slashes, which users do not always write as %2F
    else:
        return "", rest
    return login, rest[len(login) + 1 :]


def _authority(link: str) -> str:
    return "/".join(link.split("/")[:3])


def _fixed_part(link: str) -> str:
    """Return the URL up to its first part with a glob character."""
    found = re.search(r"[*\[]", link)
    return link if found is None else link[: found.start()].rpartition("/")[0]


def _query_for(link: str, queries: Mapping[str, str]) -> str:
    fitting = [key for key in queries if link == key or link.startswith(key.rstrip("/") + "/")]
    return queries[max(fitting, key=len)] if fitting else ""


# -- texts ------------------------------------------------------------------------------------------------------------


def redacted(text: str) -> str:
    """Return `text` with logins, signatures and all remembered credentials replaced by `***`."""
    if "://" in text and "@" in text:
        text = _KEY_IN_TEXT.sub(rf"\1://{HIDDEN}@", _LOGIN_IN_TEXT.sub(_hide_login, text))
    if "=" in text:
        text = _PARAMETER_IN_TEXT.sub(_hide_parameter, text)
    return text if _known_pattern is None else _known_pattern.sub(HIDDEN, text)


def _hide_login(found: re.Match[str]) -> str:
    return found[0] if found[1].lower() in _NOT_A_LOGIN else f"{found[1]}://{HIDDEN}@"


def _hide_parameter(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}={HIDDEN}" if _SECRET_NAME.search(unquote(found[2])) else found[0]


def is_secret_name(name: str) -> bool:
    """Return True if an option of this name holds a credential."""
    return _SECRET_NAME.search(name) is not None


def remember(options: Mapping[str, Any]) -> None:
    """Redact the credentials among storage options in all text of this process from now on."""
    found: set[str] = set()
    _gather(options, found, inside=False)
    _add(found)


def _gather(value: Any, found: set[str], *, inside: bool) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == _URL_SECRETS:
                _gather_url_secrets(item, found)
            else:
                _gather(item, found, inside=inside or is_secret_name(str(key)))
    elif isinstance(value, list | tuple):  # such as aiohttp.BasicAuth, which is a tuple of login and password
        for item in value:
            _gather(item, found, inside=inside)
    elif inside and isinstance(value, str):
        found.update((value, *value.split(" ")[1:]))  # "Bearer …"
        parts = (part.partition("=") for part in value.split(";"))  # "AccountName=…;AccountKey=…"
        found.update(part for name, _, part in parts if part and is_secret_name(name))


def _gather_url_secrets(hidden: Mapping[str, Mapping[str, str]], found: set[str]) -> None:
    for authority, login in hidden["logins"].items():
        user, colon, password = login.partition(":")
        found.update((login, password))
        if not colon or authority.partition("://")[0].lower() in _LOGIN_IS_KEY:
            found.add(user)
    for query in hidden["queries"].values():
        for part in query.split("&"):
            name, _, value = part.partition("=")
            if _SECRET_NAME.search(name):
                found.add(value)


def _remember_environment() -> None:
    names = [name for name in os.environ if _ENVIRONMENT.search(name)]
    values = {os.environ[name] for name in names}
    _add({value for value in values if len(value) >= 2 * _SHORTEST and not os.path.exists(value)})


def _add(values: set[str]) -> None:
    global _known_pattern
    forms = {form for value in values for form in (value, unquote(value), quote(value, safe=""), quote(value))}
    new = {form for form in forms if len(form) >= _SHORTEST} - _known
    if new:
        _known.update(new)
        longest_first = sorted(_known, key=lambda value: (-len(value), value))
        _known_pattern = re.compile("|".join(map(re.escape, longest_first)))


# -- errors -----------------------------------------------------------------------------------------------------------


def message_of(error: BaseException) -> str:
    """Return the redacted message of an error."""
    return redacted(error_text(error))


def error_line(error: BaseException) -> str:
    """Return the type and the redacted message of an error."""
    text = message_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def traceback_of(error: BaseException, frames: traceback.StackSummary | None = None) -> str:
    """Return the redacted traceback of an error with all its causes; with `frames`, only these frames and no causes."""
    return redacted(error_report(error, frames))


def print_traceback(error: BaseException) -> None:
    """Write the traceback of an error to stderr, redacted."""
    sys.stderr.write(traceback_of(error) + "\n")
    sys.stderr.flush()


@contextlib.contextmanager
def redacted_errors(replaced: Callable[[str], Exception]) -> Iterator[None]:
    """Replace errors whose text holds credentials with `replaced(redacted text)`, and drop causes whose text holds
    some."""
    try:
        yield
    except Exception as error:
        if _holds_credentials(error):
            raise replaced(error_line(error)) from None
        _cut_causes(error)
        raise


def _cut_causes(error: BaseException) -> None:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is None:
        return
    if _holds_credentials(cause):
        error.__cause__ = error.__context__ = None
        error.__suppress_context__ = True
    else:
        _cut_causes(cause)


def _holds_credentials(error: BaseException) -> bool:
    text = error_report(error, traceback.StackSummary())
    return redacted(text) != text
