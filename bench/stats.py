"""Figures of latency samples. All times in µs."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray


Samples = Sequence[float] | NDArray[np.float64]

_RESAMPLES = 1000
_BLOCK_RESAMPLES = 400
_SEED = 1  # the same samples give the same interval


class Interval(msgspec.Struct, frozen=True):
    """A 95 % confidence interval."""

    low: float
    high: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about one set of latencies. ``deviation``: the standard deviation, as a figure for jitter."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    deviation: float
    mean_interval: Interval


def summarize(samples: Samples) -> Summary:
    """Return the figures of at least one sample; raise ``ValueError`` without any."""
    values = _values(samples)
    p50, p90, p99, p999 = np.percentile(values, [50, 90, 99, 99.9])
    return Summary(
        count=len(values),
        mean=float(values.mean()),
        p50=float(p50),
        p90=float(p90),
        p99=float(p99),
        p999=float(p999),
        max=float(values.max()),
        deviation=float(values.std()),
        mean_interval=mean_interval(values),
    )


def mean_ratio_interval(numerator: Samples, denominator: Samples) -> Interval:
    """Return the bootstrap interval of mean(numerator) / mean(denominator), the two sampled independently."""
    generator = np.random.default_rng(_SEED)
    over = _bootstrap_means(_values(numerator), generator)
    under = _bootstrap_means(_values(denominator), generator)
    return _interval(over / under)


def mean_interval(samples: Samples) -> Interval:
    """Return the bootstrap interval of the mean."""
    return _interval(_bootstrap_means(_values(samples), np.random.default_rng(_SEED)))


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over another, with its interval."""

    value: float
    interval: Interval


Statistic = Callable[[NDArray[np.float64]], float]


def mean(values: NDArray[np.float64]) -> float:
    """Arithmetic mean."""
    return float(values.mean())


def p50(values: NDArray[np.float64]) -> float:
    """Median."""
    return float(np.percentile(values, 50))


def p99(values: NDArray[np.float64]) -> float:
    """99th percentile."""
    return float(np.percentile(values, 99))


def block_ratio(numerator: Sequence[Samples], denominator: Sequence[Samples], statistic: Statistic) -> Ratio:
    """Return statistic(numerator) / statistic(denominator), both measured in blocks.

    The interval resamples blocks, and samples within them: what differs from block to block counts as noise too.
    """
    over, under = [_values(block) for block in numerator], [_values(block) for block in denominator]
    generator = np.random.default_rng(_SEED)
    ratios = [
        statistic(_resample(over, generator)) / statistic(_resample(under, generator)) for _ in range(_BLOCK_RESAMPLES)
    ]
    value = statistic(np.concatenate(over)) / statistic(np.concatenate(under))
    return Ratio(value=value, interval=_interval(np.asarray(ratios)))


def _resample(blocks: list[NDArray[np.float64]], generator: np.random.Generator) -> NDArray[np.float64]:
    chosen = generator.integers(0, len(blocks), len(blocks))
    return np.concatenate([generator.choice(blocks[block], len(blocks[block])) for block in chosen])


def log_edges(samples: Samples, bins: int) -> NDArray[np.float64]:
    """Return ``bins + 1`` edges, evenly spaced on a log scale, that hold every (positive) sample."""
    values = _values(samples)
    low, high = float(values.min()), float(values.max())
    return np.geomspace(low, max(high, low * 1.01), bins + 1)


def histogram(samples: Samples, edges: NDArray[np.float64]) -> list[int]:
    """Return how many samples fall between each two edges; those outside count in the first or last bin."""
    counts, _ = np.histogram(np.clip(_values(samples), edges[0], edges[-1]), bins=edges)
    return [int(count) for count in counts]


def _values(samples: Samples) -> NDArray[np.float64]:
    values = np.asarray(samples, dtype=np.float64)
    if not values.size:
        raise ValueError("no samples")
    return values


def _bootstrap_means(values: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    picks = generator.integers(0, len(values), size=(_RESAMPLES, len(values)))
    return np.asarray(values[picks].mean(axis=1))


def _interval(estimates: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(estimates, [2.5, 97.5])
    return Interval(float(low), float(high))
