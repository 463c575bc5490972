# SPDX-License-Identifier: Apache-2.0
"""Documents whose vectors are close: k-means, then neighbours within each of its clusters."""
