# SPDX-License-Identifier: Apache-2.0
"""What a stage of your own needs to ask a language model; see docs/llm.md."""

from __future__ import annotations

from thresher.models.endpoint.budget import Budget, BudgetSpentError, EndpointError, Usage
from thresher.models.endpoint.client import LLMClient
from thresher.models.endpoint.endpoint import Endpoint
from thresher.models.endpoint.request import Answer, FailedRequest, Request
from thresher.models.endpoint.store import cache_file

__all__ = [
    "Answer",
    "Budget",
    "BudgetSpentError",
    "Endpoint",
    "EndpointError",
    "FailedRequest",
    "LLMClient",
    "Request",
    "Usage",
    "cache_file",
]
