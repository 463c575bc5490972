# SPDX-License-Identifier: Apache-2.0
"""Load and run models. Each kind needs its own package, which is imported with the first model."""
