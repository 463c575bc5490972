# SPDX-License-Identifier: Apache-2.0
"""Models behind an OpenAI-compatible endpoint: addresses, requests, limits, stored answers, and the client."""
