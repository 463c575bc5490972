# SPDX-License-Identifier: Apache-2.0
"""Clusters of verified pairs: documents that are all similar to the first document of their cluster.

Documents are looked at in the order of the input. One that has a verified pair with an earlier document that is the
first of a cluster belongs to the most similar of these; any other is the first of a cluster of its own. Connected
documents would be a simpler cluster, but its ends may have little in common.
"""

from __future__ import annotations

import numpy as np

from thresher.stages.dedup.clustering.exchange import Exchange

_AT_A_TIME = 64 * 1024


def stars(pairs: Exchange) -> Exchange:
    """Return the first document of the cluster (`root`) and the similarity with it of each document (`node`).

    `pairs` have the columns `node`, `to` (an earlier document) and `similarity`; they are taken away.
    """
    found = pairs.buckets.exchange()
    with pairs.buckets.flags() as taken:
        for bucket in range(pairs.buckets.count):
            parts = list(pairs.read(bucket))
            if not parts:
                continue
            node, to, similarity = (
                np.concatenate([part[name] for part in parts]) for name in ("node", "to", "similarity")
            )
            order = np.lexsort((to, -similarity, node))
            for start in range(0, len(order), _AT_A_TIME):
                some = order[start : start + _AT_A_TIME]
                chosen = some[_chosen(taken, node[some].tolist(), to[some].tolist())]
                roots = np.unique(to[chosen])
                found.add("node", node=node[chosen], root=to[chosen], similarity=similarity[chosen])
                found.add("node", node=roots, root=roots, similarity=np.ones(len(roots), dtype=np.float32))
    pairs.remove()
    return found


def _chosen(taken: bytearray, nodes: list[int], others: list[int]) -> list[int]:
    """Return which pairs put a document into a cluster; pairs are in order, the best of each document first."""
    chosen = []
    for place, node in enumerate(nodes):
        if not taken[node] and not taken[others[place]]:
            taken[node] = 1
            chosen.append(place)
    return chosen
