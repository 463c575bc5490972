# SPDX-License-Identifier: Apache-2.0
"""Loading and running models; each needs a package of its own, which is loaded when the first model is."""
