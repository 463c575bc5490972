# SPDX-License-Identifier: Apache-2.0
"""Rules about source code and markup."""
