"""Whose value each knob has on each GPU: the configuration's, the tuner's for as long as it lives, a pin's.

A pin wins over everything and outlives the daemon. A knob that an administrator set otherwise (``gpsched policy``, or a
reload that changed it) is closed to the tuner until it is unpinned. The tuner's values are on a lease: without a word
of it they go back to the configuration's.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from gpsched.adaptive.config import Config, overlay
from gpsched.adaptive.errors import GpschedError, UsageError
from gpsched.adaptive.knobs import (
    KNOBS,
    GpuSettings,
    KnobView,
    Owner,
    Proposal,
    Settings,
    SettingsView,
    TuneParams,
    Value,
    knob,
)


log = logging.getLogger(__name__)
_FILE = "pins.json"
_LEASE_S = (1.0, 120.0)


class PinsNotSavedError(GpschedError):
    """Pins cannot be kept. Fields: ``path``, ``reason``."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"cannot keep pins in {path} ({reason}); nothing was changed")


class LiveSettings:
    """Not thread-safe: everything happens on the daemon's loop. ``clock`` gives monotonic seconds."""

    def __init__(
        self, config: Config, state_dir: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without ``state_dir`` pins are not kept."""
        self.config = config
        self._path = state_dir / _FILE if state_dir else None
        self._clock = clock
        self._pins = _load(self._path) if self._path else {}
        self._admin: set[str] = set()
        self._proposals: dict[int, Proposal] = {}
        self._until: float | None = None
        self._tuner: TuneParams | None = None
        self._epoch = 0
        self._cache: dict[int | None, Config] = {}

    def of(self, gpu: int | None) -> Config:
        """Return the configuration in force on this GPU (its small number; None: one that is not known)."""
        if gpu not in self._cache:
            proposal = self._proposals.get(gpu) if gpu is not None else None
            self._cache[gpu] = _overlaid(self.config, (proposal.values if proposal else {}) | self._pins)
        return self._cache[gpu]

    def note(self, gpu: int) -> str | None:
        """What the tuner says of its last change on this GPU."""
        proposal = self._proposals.get(gpu)
        return proposal.note if proposal else None

    # ---- what changes them

    def reload(self, config: Config) -> None:
        """The configuration was read again. What it changed is the administrator's, the rest is open again."""
        before = self.config
        self._admin = {name for name in KNOBS if _get(config, name) != _get(before, name)}
        self._rebase(config)

    def admin_set(self, changes: dict[str, dict[str, Any]]) -> None:
        """Change keys until the next reload; raise ``ConfigError``."""
        config = overlay(self.config, changes)
        self._admin |= {name for name, known in KNOBS.items() if known.key in changes.get(known.section, {})}
        self._rebase(config)

    def tune(self, params: TuneParams) -> None:
        """Take the tuner's word; values of knobs that are not its to change are left out.

        Raises ``KnobValueError`` or ``UnknownKnobError`` before anything is changed, ``UsageError`` for a lease that
        is too long.
        """
        if not _LEASE_S[0] <= params.lease_s <= _LEASE_S[1]:
            raise UsageError(f"a lease of {params.lease_s:g} s; give {_LEASE_S[0]:g} to {_LEASE_S[1]:g}")
        checked = {proposal.gpu: self._checked(proposal) for proposal in params.proposals}
        if checked != self._proposals:
            self._cache.clear()
        self._proposals, self._tuner = checked, params
        self._until = self._clock() + params.lease_s

    def pin(self, name: str, value: Value) -> None:
        """Fix a knob on all GPUs; raise ``UnknownKnobError``, ``KnobValueError``, ``PinsNotSavedError``."""
        known = knob(name)
        self._keep(self._pins | {known.name: known.checked(value)})

    def unpin(self, name: str) -> bool:
        """Open a knob to the tuner again; False when it was open. Raises ``UnknownKnobError``."""
        known = knob(name).name
        was_closed = known in self._pins or known in self._admin
        self._admin.discard(known)
        self._keep({each: value for each, value in self._pins.items() if each != known})
        return was_closed

    def reset(self) -> None:
        """Back to the configuration's values; the tuner shall forget what it learned of the present work."""
        self._epoch += 1
        self._drop()

    def release(self, pid: int) -> bool:
        """The tuner with this pid is gone; True when taking its values back changed something."""
        return self._tuner is not None and self._tuner.pid == pid and self._drop()

    def expire(self) -> bool:
        """Take the tuner's values back when its lease has ended; True when that changed something."""
        if self._until is None or self._clock() < self._until:
            return False
        log.warning("no word of the tuner any more: its settings are taken back")
        return self._drop()

    # ---- what is shown

    def view(self, gpus: Iterable[int]) -> SettingsView:
        """Return everything, for these GPUs."""
        tuner = self._tuner
        return SettingsView(
            enabled=self.config.tuner.enabled,
            tuner_pid=tuner.pid if tuner else None,
            phase=tuner.phase if tuner else None,
            lease_s=max(0.0, self._until - self._clock()) if self._until is not None else None,
            epoch=self._epoch,
            pins=dict(self._pins),
            gpus=[self._gpu_view(gpu) for gpu in sorted(gpus)],
        )

    # ---- inside

    def _gpu_view(self, gpu: int) -> GpuSettings:
        config = self.of(gpu)
        knobs = [
            KnobView(name=name, value=_get(config, name), default=_get(self.config, name), owner=self._owner(gpu, name))
            for name in KNOBS
        ]
        return GpuSettings(gpu=gpu, knobs=knobs, note=self.note(gpu))

    def _owner(self, gpu: int, name: str) -> Owner:
        if name in self._pins:
            return "pin"
        if name in self._admin:
            return "admin"
        proposal = self._proposals.get(gpu)
        return "tuner" if proposal and name in proposal.values else "default"

    def _checked(self, proposal: Proposal) -> Proposal:
        values = {knob(name).name: knob(name).checked(value) for name, value in proposal.values.items()}
        share = "reservations.be_share"
        if share in values:
            values[share] = max(float(values[share]), self.config.reservations.be_floor)
        closed = self._admin | self._pins.keys()
        return msgspec.structs.replace(
            proposal, values={name: value for name, value in values.items() if name not in closed}
        )

    def _rebase(self, config: Config) -> None:
        self.config = config
        self._cache.clear()
        if self._tuner is not None:
            self._proposals = {gpu: self._checked(proposal) for gpu, proposal in self._proposals.items()}

    def _drop(self) -> bool:
        had = any(proposal.values for proposal in self._proposals.values())
        self._proposals, self._until, self._tuner = {}, None, None
        self._cache.clear()
        return had

    def _keep(self, pins: Settings) -> None:
        """On disk first: what cannot be kept does not count."""
        if self._path is not None and pins != self._pins:
            _save(self._path, pins)
        self._pins = pins
        self._rebase(self.config)


def _get(config: Config, name: str) -> Value:
    known = KNOBS[name]
    value: Value = getattr(getattr(config, known.section), known.key)
    return value


def _overlaid(config: Config, values: Settings) -> Config:
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        changes.setdefault(KNOBS[name].section, {})[KNOBS[name].key] = value
    return overlay(config, changes) if changes else config


def _load(path: Path) -> Settings:
    """Pins that make no sense any more are left out, and said."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[str, int | float | str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("no pins: cannot read %s (%s)", path, error)
        return {}
    pins: Settings = {}
    for name, value in found.items():
        try:
            pins[knob(name).name] = knob(name).checked(value)
        except UsageError as error:
            log.warning("%s: %s", path, error)
    return pins


def _save(path: Path, pins: Settings) -> None:
    new = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(msgspec.json.encode(pins) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise PinsNotSavedError(path, error.strerror or str(error)) from error
