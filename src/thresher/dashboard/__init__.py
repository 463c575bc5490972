# SPDX-License-Identifier: Apache-2.0
"""The dashboard in the browser: what a run folder says, as JSON on loopback, and the pages that show it."""
