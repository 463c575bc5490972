# SPDX-License-Identifier: Apache-2.0
"""Names under which other curators' scripts look for executors."""
