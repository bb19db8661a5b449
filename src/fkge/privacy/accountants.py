"""Accountants: the smallest ε at a δ that each method can prove for releases together.

    price(releases, delta, "pld")    privacy loss distributions (dp-accounting): the tightest for anything priced here
    price(releases, delta, "rdp")    Rényi divergences (dp-accounting): fast, and a few per cent to a fifth larger
    price(releases, delta, "gdp")    the closed form, exact, for Gaussian releases of the full batch and nothing else
    price(releases, delta, "tight")  "gdp" where that is possible, else "pld": what the ledger charges

Every figure is an upper bound on the true ε, of one unit, under one neighbouring relation.

Sensitivity is stated under the release's own relation (see `Release`), so a mechanism without sampling is a shift by
that much whatever the relation is. dp-accounting disagrees with itself here (for a replacement, its PLD doubles the
sensitivity of a Gaussian and its RDP does not): the relation is passed on for samples, where it matters, and there as
dp-accounting means it, with the norm of one unit, half of what a replacement moves.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from fkge.errors import PrivacyError, did_you_mean
from fkge.privacy.events import ADD_OR_REMOVE, GAUSSIAN, LAPLACE_VOTES, REPLACE, Release
from fkge.privacy.moments import paper_epsilon

METHODS: Final = ("pld", "rdp", "gdp", "tight")

_Events: TypeAlias = tuple[tuple[Release, int], ...]
"""Releases with count 1, and how many times each, in a fixed order: what a price depends on."""


def price(releases: Iterable[Release], delta: float, method: str = "pld") -> float:
    """Return ε of all releases together at `delta`; 0 for none.

    Args:
        releases: all about one unit under one relation.
        delta: δ, between 0 and 1.
        method: one of `METHODS`.

    Raises:
        PrivacyError: the method is unknown or cannot price one of them, or they are of more than one unit or relation.
    """
    if method not in METHODS:
        raise PrivacyError(f"no accountant {method!r}{did_you_mean(method, METHODS)}; known: {', '.join(METHODS)}")
    _check_delta(delta)
    events = _coalesce(releases)
    if method == "tight":
        method = "gdp" if all(_is_plain_gaussian(event) for event, _ in events) else "pld"
    return _price(events, delta, method) if events else 0.0


def fits(releases: Iterable[Release], epsilon: float, delta: float) -> bool:
    """Return whether any accountant can prove that all releases together are within a budget.

    The fastest is asked first: RDP takes microseconds, PLD a tenth of a second, and only the end of a budget needs PLD.

    Args:
        releases: see `price`; epsilon, delta: the budget.
    """
    releases = list(releases)
    if all(_is_plain_gaussian(release) for release in releases):
        return price(releases, delta, "gdp") <= epsilon
    return price(releases, delta, "rdp") <= epsilon or price(releases, delta, "pld") <= epsilon


def paper_price(releases: Iterable[Release], delta: float) -> float:
    """Return ε̂ of the paper's formula for votes, each query counted, whatever the votes were (`paper_epsilon`).

    For comparison with `price`: it is several times larger than what is known today.

    Raises:
        PrivacyError: a release is not a vote that moves both counts by 1, or λ differs between them.
    """
    _check_delta(delta)
    events = _coalesce(releases)
    for event, _ in events:
        if event.mechanism != LAPLACE_VOTES or event.sensitivity != 2:
            raise PrivacyError(f"the paper's formula prices votes that move both counts by 1, not {event}")
    if len({event.noise for event, _ in events}) > 1:
        raise PrivacyError("the paper's formula has one λ; these votes have several: price them by pld or rdp")
    if not events:
        return 0.0
    return paper_epsilon(sum(count for _, count in events), 1 / events[0][0].noise, delta)


def noise_for(epsilon: float, delta: float, steps: int, sampling: float | None = None) -> float:
    """Return the smallest noise multiplier (noise over sensitivity) with which Gaussian steps cost at most `epsilon`.

    Exact for the full batch, by the closed form. For Poisson samples, adding or removing one unit, by PLD to one part
    in a thousand, from above.

    Args:
        epsilon: ε, positive and finite.
        delta: δ, between 0 and 1.
        steps: number of steps, at least 1.
        sampling: rate of Poisson sampling; None for the full batch.

    Raises:
        PrivacyError: an argument is out of its range.
    """
    if not (0 < epsilon < math.inf) or type(steps) is not int or steps < 1:
        raise PrivacyError(f"noise needs a finite ε > 0 and at least one step; got ε = {epsilon!r}, steps = {steps!r}")

    def steps_with(multiplier: float) -> list[Release]:
        return [Release(GAUSSIAN, "unit", ADD_OR_REMOVE, 1.0, multiplier, steps, sampling)]

    if steps_with(1.0)[0].sampling is None:
        return _smallest(lambda noise: price(steps_with(noise), delta, "gdp") <= epsilon, 1e-12)
    enough = _smallest(lambda noise: price(steps_with(noise), delta, "rdp") <= epsilon, 1e-3)
    return _smallest(lambda noise: fits(steps_with(noise), epsilon, delta), 1e-3, start=enough, stride=1.1)


# -- the closed form -------------------------------------------------------------------------------


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact δ at `epsilon` of a Gaussian whose mean moves by `mu` deviations (Balle and Wang 2018)."""
    near, far = _log_cdf(mu / 2 - epsilon / mu), epsilon + _log_cdf(-mu / 2 - epsilon / mu)
    return math.exp(near) * max(0.0, -math.expm1(far - near))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the exact ε at `delta` of the same: the inverse of `gaussian_delta` by bisection, rounded up."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return _smallest(lambda epsilon: gaussian_delta(mu, epsilon) <= delta, 1e-13)


def _log_cdf(x: float) -> float:
    """Return log Φ(x) of the standard normal distribution, also where Φ(x) itself is 0 in floats."""
    if x > -25:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    y = 1 / x**2
    series = 1 - y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y * (1 - 9 * y))))
    return -(x**2) / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(series)


def _smallest(holds: Callable[[float], bool], relative: float, start: float = 1.0, stride: float = 2.0) -> float:
    """Return the smallest x > 0 that `holds`, from above, for a condition that holds from some x on."""
    high = start
    while not holds(high):
        high *= stride
    low = high / stride
    while low > 1e-12 and holds(low):
        low, high = low / stride, low
    while high - low > relative * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


# -- pricing ---------------------------------------------------------------------------------------


def _check_delta(delta: float) -> None:
    if not (0 < delta < 1):
        raise PrivacyError(f"δ must lie between 0 and 1, got {delta!r}")


def _is_plain_gaussian(event: Release) -> bool:
    return event.mechanism == GAUSSIAN and event.sampling is None


def _coalesce(releases: Iterable[Release]) -> _Events:
    """Count equal events together: thousands of entries become a few, and prices do not depend on their order."""
    counts: Counter[Release] = Counter()
    for release in releases:
        counts[release.times(1)] += release.count
    kinds = sorted({event.of for event in counts})
    if len(kinds) > 1:
        named = "; ".join(f"{unit} ({relation})" for unit, relation in kinds)
        raise PrivacyError(f"releases of different units or relations have no common price: {named}. Price each apart")
    return tuple(sorted(counts.items(), key=lambda item: item[0].canonical()))


@lru_cache(maxsize=1024)
def _price(events: _Events, delta: float, method: str) -> float:
    return {"pld": _by_pld, "rdp": _by_rdp, "gdp": _by_gdp}[method](events, delta)


def _mu(events: _Events) -> float:
    return math.sqrt(sum(count * (event.sensitivity / event.noise) ** 2 for event, count in events))


def _by_gdp(events: _Events, delta: float) -> float:
    for event, _ in events:
        if not _is_plain_gaussian(event):
            raise PrivacyError(f"the closed form prices Gaussian releases of the full batch only, not {event}")
    return gaussian_epsilon(_mu(events), delta)


def _by_rdp(events: _Events, delta: float) -> float:
    from dp_accounting import rdp

    total = sum(count * _curve(event) for event, count in events)
    return float(rdp.compute_epsilon(rdp.RdpAccountant().orders, total, delta)[0])


@lru_cache(maxsize=64)
def _curve(event: Release) -> Any:
    """Return the Rényi divergences of one event at dp-accounting's orders."""
    import dp_accounting
    from dp_accounting import rdp

    multiplier = event.noise / event.sensitivity
    if event.mechanism == LAPLACE_VOTES:
        # Two counts, each moved by half of the L1 sensitivity.
        priced = dp_accounting.SelfComposedDpEvent(dp_accounting.LaplaceDpEvent(2 * multiplier), 2)
    else:
        priced = dp_accounting.GaussianDpEvent(multiplier)
        # A sample of replaced units has no curve in dp-accounting. The full batch bounds it: given who was drawn, the
        # divergence is 0 or that of the full batch, and a mixture's is no larger than its parts'.
        if event.sampling is not None and event.relation == ADD_OR_REMOVE:
            priced = dp_accounting.PoissonSampledDpEvent(event.sampling, priced)
    accountant = rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)  # it warns of each order that it leaves out; the others still give a bound
    try:
        return accountant.compose(priced).rdp
    finally:
        log.setLevel(before)


def _by_pld(events: _Events, delta: float) -> float:
    """Compose the distributions of privacy loss, on a grid that is coarser where ε is large.

    The grids are nested and rounding is upwards, so with a coarser one more releases never cost less than fewer.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    rough = _by_rdp(events, delta)
    if rough > 1e4:
        return rough  # such an ε protects nothing, so the last per cents do not matter
    interval = 1e-4 if rough < 30 else 1e-3 if rough < 1000 else 1e-2
    plain = tuple(item for item in events if _is_plain_gaussian(item[0]))
    parts = [_loss_of(event, interval).self_compose(count) for event, count in events if not _is_plain_gaussian(event)]
    if plain:
        parts.append(pld.from_gaussian_mechanism(1 / _mu(plain), value_discretization_interval=interval))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta))


@lru_cache(maxsize=64)
def _loss_of(event: Release, interval: float) -> Any:
    """Return the distribution of one event's privacy loss."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    multiplier = event.noise / event.sensitivity
    if event.mechanism == LAPLACE_VOTES:
        return pld.from_laplace_mechanism(2 * multiplier, value_discretization_interval=interval).self_compose(2)
    replaced = event.relation == REPLACE
    return pld.from_gaussian_mechanism(
        2 * multiplier if replaced else multiplier,
        value_discretization_interval=interval,
        sampling_prob=event.sampling,
        neighboring_relation=NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE,
    )
