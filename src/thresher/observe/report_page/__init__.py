# SPDX-License-Identifier: Apache-2.0
"""The report of a run as one page of HTML that needs no other file."""
