# SPDX-License-Identifier: Apache-2.0
"""Phrases of legal boilerplate on web pages."""

from __future__ import annotations

POLICY_PHRASES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "privacy overview",
    "use of cookies",
    "use cookies",
    "privacy & cookies policy",
    "privacy and cookies policy",
    (
        "necessary cookies are absolutely essential for the website to function properly. this category only includes"
        " cookies that ensures basic functionalities and security features of the website. these cookies do not store"
        " any personal information."
    ),
    (
        "any cookies that may not be particularly necessary for the website to function and is used specifically to"
        " collect user personal data via analytics, ads, other embedded contents are termed as non-necessary cookies."
        " it is mandatory to procure user consent prior to running these cookies on your website."
    ),
    "if you continue to browse this site without changing your cookie settings, you agree to this use. acceptread more",
)
"""Phrases of such notices, in lower case."""
PLACEHOLDER = "lorem ipsum"
"""Placeholder text of unfinished pages."""
