# SPDX-License-Identifier: Apache-2.0
"""All nodes and what they have left. Nodes with equal room are kept together: a search looks at each kind once."""

from __future__ import annotations

from thresher.scheduler.capacity import Need, Place, Room, devices_for, parts_on, rank, room_of, taken
from thresher.scheduler.model import NodeSpec


class Nodes:
    """The nodes that are up. Changed in place by `take` and `give_back`."""

    __slots__ = ("_by_room", "room")

    def __init__(self, nodes: tuple[NodeSpec, ...] = ()) -> None:
        self.room: dict[str, Room] = {}
        self._by_room: dict[Room, dict[str, None]] = {}
        for node in nodes:
            self.join(node)

    def copy(self) -> Nodes:
        """The same rooms, to try something out."""
        other = Nodes()
        other.room = dict(self.room)
        other._by_room = {room: dict(nodes) for room, nodes in self._by_room.items()}
        return other

    def join(self, node: NodeSpec) -> None:
        """A node is there, empty."""
        self._set(node.node, room_of(node))

    def lose(self, node: str) -> None:
        """A node is gone, with all that was placed on it."""
        self._set(node, None)

    def find(self, need: Need) -> Place | None:
        """The best place for a worker; None if there is no room."""
        best: tuple[tuple[float, ...], str, tuple[int, ...]] | None = None
        for room, nodes in self._by_room.items():
            devices = devices_for(need, room)
            if devices is not None:
                found = (rank(need, room, devices), next(iter(nodes)), devices)
                if best is None or found[0] < best[0]:
                    best = found
        if best is None:
            return None
        _, node, devices = best
        return Place(node, devices, parts_on(need, self.room[node], devices[0]) if devices else 0)

    def take(self, need: Need, place: Place) -> None:
        """Book a worker at its place."""
        self._set(place.node, taken(self.room[place.node], need, place))

    def give_back(self, need: Need, place: Place) -> None:
        """A worker has gone. If its node went first, nothing is left to give back."""
        if place.node in self.room:
            self._set(place.node, taken(self.room[place.node], need, place, -1))

    def place(self, need: Need) -> bool:
        """Find a place and take it; False if there is none."""
        place = self.find(need)
        if place is not None:
            self.take(need, place)
        return place is not None

    def _set(self, node: str, room: Room | None) -> None:
        old = self.room.pop(node, None)
        if old is not None:
            same = self._by_room[old]
            del same[node]
            if not same:
                del self._by_room[old]
        if room is not None:
            self.room[node] = room
            self._by_room.setdefault(room, {})[node] = None
