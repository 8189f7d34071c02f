"""The model that experience corrects: what costs predict, plus a Gaussian process on what was measured besides.

One process for the margin (ln of limit over latency, the least of all objectives), one for best-effort progress, over
the knobs and the load. Of the tuner's modules this alone imports scikit-learn.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern

from gpsched.adaptive.hints.costs import LEVELS, Costs
from gpsched.adaptive.knobs import Settings
from gpsched.tuner import prior
from gpsched.tuner.crowds import Crowds
from gpsched.tuner.memory import Memory
from gpsched.tuner.prior import Demand
from gpsched.tuner.space import LEVEL, SHARE, Cube, Space


_LENGTH = 0.6  # of the cube's side: how far one measurement tells about its neighbours
_WORD_LENGTH = 0.35  # the same between levels, which have little in common
_LOAD_LENGTH = 0.8  # ln of a ratio of loads
_MARGIN_SD, _PROGRESS_SD = 0.2, 0.06  # how far costs may be wrong
_LEARN_FROM, _LEARN_EVERY = 10, 6  # points
_FAR = 0.25  # of progress: how far the best and the worst are believed to be from the base
_LEAST_NOISE = 1e-4


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a single window: of the margin in a given crowd, and of progress as a share of it.

    ``least``: of the margin in any crowd, what so few bursts must have. ``tail``: by how much the worst windows fell
    below what their settings give on average.
    """

    margin: float = 0.05
    progress: float = 0.01
    least: float = 0.0
    tail: float = 0.0


@dataclass(frozen=True)
class Prediction:
    """Mean and standard deviation for each of the settings asked about."""

    margin: Cube
    margin_sd: Cube
    progress: Cube
    progress_sd: Cube


class Surrogate:
    """``fit`` to a memory, then ``predict``. Lengths are learned now and then, else fitting takes milliseconds."""

    def __init__(self, space: Space, costs: Mapping[str, Costs] = LEVELS) -> None:
        self.space, self._costs = space, costs
        self._kernels = [self._kernel(_MARGIN_SD), self._kernel(_PROGRESS_SD)]
        self._learned_at = 0
        self._models: list[GaussianProcessRegressor] | None = None
        self._demand = Demand(0.0, 1.0, 0.0, 1.0, 0)
        self._offset, self._scale = 0.0, 1.0

    def fit(self, memory: Memory, demand: Demand, noise: Noise, crowds: Crowds) -> None:
        """Take what is in the memory, as it would be in the typical crowd; without anything, costs alone predict."""
        self._demand = demand
        entries = [each for each in memory.entries if self.space.holds(each.point.settings)]
        if not entries:
            self._models = None
            self._offset, self._scale = 0.0, 1.0
            return
        settings, loads = [each.point.settings for each in entries], [each.point.load for each in entries]
        means = self._means(settings, loads)
        weights = np.array([1.0 / memory.noise_factor(each) for each in entries])
        margins = [crowds.carried(str(p.settings[LEVEL]), p.margin, p.crowd) for p in (each.point for each in entries)]
        measured = np.column_stack([margins, [each.point.progress for each in entries]])
        self._offset = _offset([str(each[LEVEL]) for each in settings], measured[:, 0] - means[0], weights)
        self._scale = max(float(np.average(measured[:, 1] / means[1], weights=weights)), 1e-6)
        targets = (measured[:, 0] - means[0] - self._offset, measured[:, 1] / (means[1] * self._scale) - 1.0)
        inputs = self._inputs(settings, loads)
        learn = len(entries) >= max(_LEARN_FROM, self._learned_at + _LEARN_EVERY)
        self._models = [
            self._fitted(number, inputs, target, sd**2 / weights, learn)
            for number, (target, sd) in enumerate(zip(targets, (noise.margin, noise.progress), strict=True))
        ]
        if learn:
            self._learned_at = len(entries)

    def carried(self, settings: Settings, measured: float, load: float, to: float) -> float:
        """Return what progress that was measured at one load would have been at another, by costs alone."""
        _, means = self._means([settings, settings], [load, to])
        return float(measured * means[1] / means[0])

    def predict(self, settings: Sequence[Settings], load: float) -> Prediction:
        """Return what these settings would give at this load."""
        loads = [load] * len(settings)
        margins, progress = self._means(settings, loads)
        margins, progress = margins + self._offset, progress * self._scale
        if self._models is None:
            ones = np.ones(len(settings))
            return Prediction(margins, _MARGIN_SD * ones, progress, _PROGRESS_SD * progress)
        inputs = self._inputs(settings, loads)
        (more, margin_sd), (factor, factor_sd) = (model.predict(inputs, return_std=True) for model in self._models)
        return Prediction(margins + more, margin_sd, progress * (1.0 + factor), factor_sd * progress)

    def _means(self, settings: Sequence[Settings], loads: Sequence[float]) -> tuple[Cube, Cube]:
        demands = [replace(self._demand, rate_hz=load, busy_share=self._busy(load)) for load in loads]
        pairs = list(zip(settings, demands, strict=True))
        margins = np.array([prior.margin(each, demand, self._costs) for each, demand in pairs])
        return margins, np.array([self._progress(each, demand) for each, demand in pairs])

    def _progress(self, settings: Settings, demand: Demand) -> float:
        """What costs say, but no further from what they say of the base than they can be believed.

        A ratio to what they hold to be next to nothing would have the model expect wonders of its neighbours.
        """
        share = float(settings[SHARE])
        whole = ({**each, SHARE: 1.0} for each in (self.space.base, settings))
        base, found = (prior.progress(each, demand, self._costs) for each in whole)
        return share * min(max(found, base * (1.0 - _FAR)), base * (1.0 + _FAR))

    def _busy(self, load: float) -> float:
        now = self._demand
        return min(now.busy_share * load / now.rate_hz, 1.0) if now.rate_hz > 0.0 else now.busy_share

    def _inputs(self, settings: Sequence[Settings], loads: Sequence[float]) -> Cube:
        cubes = np.array([self.space.encode(each) for each in settings]).reshape(len(settings), len(self.space))
        return np.column_stack([cubes, [math.log(load + 1e-3) for load in loads]])

    def _kernel(self, sd: float) -> Kernel:
        lengths = [_WORD_LENGTH if name == LEVEL else _LENGTH for name in self.space.names] + [_LOAD_LENGTH]
        bounds = [(length / 2.5, length * 2.5) for length in lengths]
        if LEVEL in self.space.names:  # few points suffice to make levels look alike that are not
            bounds[self.space.names.index(LEVEL)] = (_WORD_LENGTH / 2.5, _WORD_LENGTH * 1.2)
        shape = Matern(np.array(lengths), length_scale_bounds=bounds, nu=2.5)
        return ConstantKernel(sd**2, constant_value_bounds=((sd / 2) ** 2, (sd * 3) ** 2)) * shape

    def _fitted(
        self, number: int, inputs: Cube, target: Cube, variances: Cube, learn: bool
    ) -> GaussianProcessRegressor:
        optimizer = "fmin_l_bfgs_b" if learn else None
        alpha = np.maximum(variances, _LEAST_NOISE**2)
        model = GaussianProcessRegressor(self._kernels[number], alpha=alpha, optimizer=optimizer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound says: this knob hardly matters
            model.fit(inputs, target)
        self._kernels[number] = model.kernel_
        return model


def _offset(levels: Sequence[str], residuals: Cube, weights: Cube) -> float:
    """What all levels have in common of what costs did not predict; of one alone, half is taken to be its own."""
    which = np.array(levels)
    means = [np.average(residuals[which == level], weights=weights[which == level]) for level in set(levels)]
    return float(np.sum(means) / (len(means) + 1))
