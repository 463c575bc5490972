# SPDX-License-Identifier: Apache-2.0
"""Rules that judge a document: one file each."""
