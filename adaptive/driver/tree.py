"""The objects of one process that matter: clients, devices, subdevices, channel groups, channels and what is on
them."""

from dataclasses import dataclass, field

from gpsched.adaptive.driver import classes
from gpsched.adaptive.driver.types import Channel, ChannelGroup


Key = tuple[int, int]  # client, handle


@dataclass(slots=True)
class RmObject:
    """One object: its class, its parent's key, the descriptor it was allocated on. An alias is a second handle
    (RM_DUP)."""

    class_: int
    parent: Key
    fd: int
    alias: bool = False
    children: set[Key] = field(default_factory=set)

    @property
    def is_group(self) -> bool:
        """Tell whether this is a channel group's own handle."""
        return self.class_ == classes.CHANNEL_GROUP and not self.alias


class ObjectTree:
    """The objects of one process, by (client, handle). A client is its own parent's top: (client, client)."""

    def __init__(self) -> None:
        self.objects: dict[Key, RmObject] = {}
        self.groups: dict[Key, ChannelGroup] = {}  # as last told

    def add(self, key: Key, made: RmObject) -> None:
        """Add an object below its parent, if that is known."""
        self.objects[key] = made
        parent = self.objects.get(made.parent)
        if parent is not None and made.parent != key:
            parent.children.add(key)

    def seed(self, group: ChannelGroup) -> None:
        """Add a group that a scan found. Its device was not seen: one that no process can name stands for it."""
        device = (group.client, -(group.subdevice or 1))
        if device not in self.objects:
            self.add(device, RmObject(classes.DEVICE, (group.client, group.client), group.fd))
        if group.subdevice is not None:
            self.objects.setdefault((group.client, group.subdevice), RmObject(classes.SUBDEVICE, device, group.fd))
            self.objects[device].children.add((group.client, group.subdevice))
        self.add(group.key, RmObject(classes.CHANNEL_GROUP, device, group.fd))
        for channel in group.channels:
            self.add((channel.client, channel.handle), RmObject(min(classes.CHANNELS), group.key, group.fd))
        self.groups[group.key] = group

    def matters(self, made: RmObject) -> bool:
        """Tell whether an object leads to a channel group or says what one is for."""
        if made.class_ in (classes.DEVICE, classes.SUBDEVICE, classes.CHANNEL_GROUP) or made.class_ in classes.CLIENTS:
            return True
        parent = self.objects.get(made.parent)
        if parent is None:
            return False
        return parent.is_group if classes.is_channel(made.class_) else classes.is_channel(parent.class_)

    def remove(self, key: Key) -> list[Key]:
        """Drop an object and everything below it; return the keys dropped."""
        top = self.objects.get(key)
        if top is None:
            return []
        above = self.objects.get(top.parent)
        if above is not None:
            above.children.discard(key)
        dropped, todo = [], [key]
        while todo:
            current = todo.pop()
            gone = self.objects.pop(current, None)
            if gone is not None:
                dropped.append(current)
                todo.extend(gone.children)
        return dropped

    def group_above(self, key: Key) -> Key | None:
        """Return the group that an object is, or is in."""
        for _ in range(4):  # group, channel, object on the channel: never deeper
            found = self.objects.get(key)
            if found is None:
                return None
            if found.is_group:
                return key
            key = found.parent
        return None

    def describe(self, key: Key) -> ChannelGroup:
        """Return the group with this key, as its channels and what sits on them tell."""
        made = self.objects[key]
        channels, engine = [], "unknown"
        for child in sorted(made.children):
            if not classes.is_channel(self.objects[child].class_) or self.objects[child].alias:
                continue
            channels.append(Channel(*child))
            for below in map(self.objects.__getitem__, self.objects[child].children):
                engine = engine if below.alias else classes.stronger(engine, classes.engine_of(below.class_))
        return ChannelGroup(*key, engine, tuple(channels), self._subdevice(made.parent), None, made.fd)

    def _subdevice(self, device: Key) -> int | None:
        above = self.objects.get(device)
        children = above.children if above is not None else ()
        known = [(handle, self.objects[client, handle]) for client, handle in children]
        handles = [handle for handle, made in known if made.class_ == classes.SUBDEVICE and not made.alias]
        return min(handles, default=None)
