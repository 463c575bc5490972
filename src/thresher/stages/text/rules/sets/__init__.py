# SPDX-License-Identifier: Apache-2.0
"""Published rule sets; each of their checks is reported as a rule of its own."""
