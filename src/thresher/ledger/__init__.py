# SPDX-License-Identifier: Apache-2.0
"""Run folders, commits, resume and quarantine, as plain files that are each written to a temporary name and renamed."""
