# SPDX-License-Identifier: Apache-2.0
"""Our scheduler on a Ray cluster: nodes, actors, and payloads in the object store."""
