"""The host of a translation game: teachers that see its rows, a noisy vote, and a student that sees only the vote.

Everything that goes back to the client is made by `Student`, which has no access to Y, from the client's own samples
and the noisy labels. ε covers that, and only that. A refusal, a pause or an early end would be an answer too, so every
check of a message looks at the message alone, and the number of steps is fixed beforehand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fkge.embed.dp_noise import Noise
from fkge.errors import PeerError, SettingsError
from fkge.ppat.discriminators import Discriminators
from fkge.ppat.messages import Candidate, FromClient, FromHost, Gradient, Received, Role, Samples, check_vectors
from fkge.ppat.settings import PpatSettings
from fkge.privacy.moments import PaperMoments, paper_epsilon


def noisy_labels(votes: Tensor, teachers: int, lam: float, generator: torch.Generator | Noise) -> Tensor:
    """Return PATE_λ of Eq. 5: the class with more votes after noise, as 0 or 1, (n,) int64.

    Args:
        votes: (n,) int64, how many teachers take each sample for a real one.
        teachers: how many there are.
        lam: both counts of every sample get independent Laplace noise of scale 1/λ; none for 0. A tie is a 0.
        generator: source of the noise. Who knows its seed can subtract the noise; a `Noise` has a key too long to try.
    """
    counts = torch.stack([teachers - votes, votes], dim=1).double()
    if lam > 0:
        counts = counts + laplace(counts.shape, 1 / lam, generator)
    return (counts[:, 1] > counts[:, 0]).long()


def laplace(shape: tuple[int, ...], scale: float, generator: torch.Generator | Noise) -> Tensor:
    """Draw Laplace noise, float64: the difference of two exponentials, or the determinant of 2 × 2 Gaussians.

    Args:
        shape, scale: of the noise; generator: its source.
    """
    if isinstance(generator, Noise):
        z = generator.normal(4, math.prod(shape)).double().view(4, *shape)
        return scale * (z[0] * z[1] - z[2] * z[3])
    draws = torch.empty(2, *shape, dtype=torch.float64).exponential_(generator=generator)
    return scale * (draws[0] - draws[1])


class Teachers:
    """The discriminators that see Y, each its own part.

    Args:
        rows: Y, (n, d).
        settings: of the game.
        generator: source of the partition into `parts`, the initial weights and the batches.
    """

    def __init__(self, rows: Tensor, settings: PpatSettings, generator: torch.Generator) -> None:
        self._settings = settings
        self._generator = generator
        order = torch.randperm(len(rows), generator=generator)
        self.parts = [rows[chosen] for chosen in order.tensor_split(settings.teachers)]
        self.networks = Discriminators(settings.teachers, rows.shape[1], settings.hidden, generator, rows.dtype)

    def vote(self, samples: Tensor) -> Tensor:
        """Vote on the samples, (n, d), then learn from them by Eq. 4.

        Returns:
            (n,) int64: how many teachers take each sample for a real one, T_i(x) > 1/2. Raw: must not leave the host.
        """
        # As many real rows as samples, drawn with replacement, so that small parts count as much as large ones.
        size, drawn = (len(samples),), self._generator
        real = torch.stack([part[torch.randint(len(part), size, generator=drawn)] for part in self.parts])
        fake = samples.expand(len(self.parts), *samples.shape)
        logits = self.networks.logits(torch.cat([fake, real], dim=1))
        on_fake, on_real = logits.split(len(samples), dim=1)
        # One sum over all teachers; no teacher's parameters occur in another's term. Eq. 4 prints a sum over samples.
        # A mean has the same minimiser and the step size of Eqs. 3 and 7; by the sum, the weights passed 1e20 in
        # 400 steps.
        loss = (F.softplus(on_fake) + F.softplus(-on_real)).mean(dim=1).sum() / 2
        (gradient,) = torch.autograd.grad(loss, self.networks.parameters)
        self.networks.descend(gradient, self._settings.lr, self._settings.momentum)
        votes: Tensor = (on_fake > 0).sum(dim=0)
        return votes


class Student:
    """The discriminator that the client learns from. Y is never passed to it.

    Args:
        dim, dtype: width and type of the samples; settings: of the game.
        generator: draws the initial weights.
    """

    def __init__(self, dim: int, settings: PpatSettings, generator: torch.Generator, dtype: torch.dtype) -> None:
        self._settings = settings
        self.network = Discriminators(1, dim, settings.hidden, generator, dtype)

    def judge(self, samples: Tensor, labels: Tensor) -> Tensor:
        """Return dL_G/dG(X), Eq. 3, for these samples, and learn their noisy labels, Eq. 7.

        Both are taken at the same parameters, as in Algorithm 2. Eq. 7 prints the log-likelihood: its negative is
        minimised.

        Args:
            samples: (n, d).
            labels: (n,) of 0 and 1.

        Returns:
            (n, d); numbers that are not finite become 0.
        """
        samples = samples.detach().requires_grad_()
        logits = self.network.logits(samples[None])[0]
        generator_loss = -F.softplus(logits).mean()  # log(1 − S) of a logit z is −softplus(z)
        student_loss = F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        (answer,) = torch.autograd.grad(generator_loss, samples, retain_graph=True)
        (gradient,) = torch.autograd.grad(student_loss, self.network.parameters)
        self.network.descend(gradient, self._settings.lr, self._settings.momentum)
        return answer.nan_to_num(0.0, 0.0, 0.0)


class PpatHost(Role[FromClient, FromHost]):
    """The host's role, with the discriminators.

    Args:
        rows: Y, (n, d_host), in the order of the client's X.
        settings: the same as the client's.
        generator: source of everything random here, the noise included. Its seed must be unknown to the client, and new
            for every game.
        noise: source of the noise on the votes; `generator` if None.

    Attributes:
        teachers, student: the discriminators, for inspection at the host.
        votes: prices the votes as they were cast, Eq. 9. Made with raw Y: for the host only.
        criterion: the CSLS criterion of the best candidate. Made with raw Y: for the host only.

    Raises:
        SettingsError: there are fewer rows than teachers.
    """

    _takes = (Samples, Candidate)

    def __init__(
        self, rows: Tensor, settings: PpatSettings, generator: torch.Generator, noise: Noise | None = None
    ) -> None:
        if rows.ndim != 2 or len(rows) < settings.teachers:
            raise SettingsError(
                f"teachers: each of {settings.teachers} needs an aligned row of its own, (n, d) with "
                f"n ≥ {settings.teachers}; got {tuple(rows.shape)}. Use fewer teachers, or skip this peer"
            )
        self.settings = settings
        self._rows = rows.detach().cpu().clone()
        self._noise = noise or generator
        self.teachers = Teachers(self._rows, settings, generator)
        self.student = Student(rows.shape[1], settings, generator, rows.dtype)
        self._owed = settings.candidate_due(0)
        self.votes = PaperMoments(settings.lam, settings.delta)
        self.criterion = -math.inf
        self._best: Candidate | None = None

    @property
    def finished(self) -> bool:
        """Whether the last candidate has come."""
        return self._done == self.settings.steps and not self._owed

    @property
    def price(self) -> dict[str, float]:
        """The cost of the votes so far at the δ of the settings, by `paper_epsilon`; also of a game that broke off.

        ``queries`` are the samples voted on, ``epsilon_paper_per_sample`` is ε̂ for that many: the figure to account
        with. ``epsilon_paper_per_batch`` is what the paper reports, ε̂ as if a whole batch were one query: it
        guarantees nothing. Without noise there is neither.
        """
        s, queries = self.settings, self._done * self.settings.batch_of(len(self._rows))
        per_sample, per_batch = (paper_epsilon(count, s.lam, s.delta) for count in (queries, self._done))
        priced = {"epsilon_paper_per_sample": per_sample, "epsilon_paper_per_batch": per_batch}
        return {"queries": queries} | (priced if math.isfinite(per_sample) else {})

    @property
    def translation(self) -> Candidate:
        """The best candidate so far: the client's rows in the host's space."""
        if self._best is None:
            raise RuntimeError("no candidate has come yet")
        return self._best

    def _check_vectors(self, message: FromClient) -> None:
        n, dim = self._rows.shape
        rows = self.settings.batch_of(n) if isinstance(message, Samples) else n
        check_vectors(message, message.vectors, (rows, dim), self._rows.dtype)
        if isinstance(message, Candidate) and message.neighbours is not None:
            check_vectors(message, message.neighbours, (None, dim), self._rows.dtype)

    @property
    def _due(self) -> type[FromClient] | str:
        return "nothing" if self.finished else Candidate if self._owed else Samples

    def _act(self, message: FromClient) -> FromHost:
        return self._play(message) if isinstance(message, Samples) else self._weigh(message)

    def _play(self, message: Samples) -> Gradient:
        """Do one round of Algorithm 2."""
        s = self.settings
        votes = self.teachers.vote(message.vectors)
        for ones, count in enumerate(votes.bincount().tolist()):
            if count:
                self.votes.add(s.teachers - ones, ones, count)
        labels = noisy_labels(votes, s.teachers, s.lam, self._noise)
        answer = self.student.judge(message.vectors, labels)
        self._done += 1
        self._owed = s.candidate_due(self._done)
        return Gradient(message.step, answer)

    def _weigh(self, message: Candidate) -> Received:
        """Keep the candidate if it is the best by CSLS.

        The criterion is computed on raw Y, without noise, so ε does not cover it: the client must not learn which
        candidate won, nor by how much. That is why it sends its whole translation every time and gets `Received` every
        time, instead of being asked for the best one, and why the game does not stop when the criterion stagnates.
        """
        if self._best is not None:
            before, now = (0 if c.neighbours is None else len(c.neighbours) for c in (self._best, message))
            if before != now:
                raise PeerError(f"Candidate of step {message.step}: {now} neighbours, but {before} in the one before")
        n, some = len(self._rows), min(len(self._rows), self.settings.csls_rows)
        chosen = torch.arange(some) * n // some
        value = csls_criterion(message.vectors[chosen], self._rows[chosen], self.settings.csls_k)
        if math.isnan(value):  # Y itself may not be finite; the client must not learn that
            value = -math.inf
        if self._best is None or value > self.criterion:
            self._best, self.criterion = message, value
        self._owed = False
        return Received(message.step)


def csls_criterion(x: Tensor, y: Tensor, k: int = 10, chunk: int = 1024) -> float:
    """Return the mean, over the rows of `x`, of the CSLS similarity to the nearest row of `y`.

    Cross-domain similarity local scaling says how well two clouds of vectors lie on each other, without pairs:
    CSLS(x, y) = 2 cos(x, y) − r(x) − r(y), where r is the mean cosine to the k nearest rows of the other cloud.

    Args:
        x: (n, d).
        y: (m, d).
        k: neighbours; all of them if there are fewer.
        chunk: rows of the similarity matrix held at a time.
    """
    x, y = F.normalize(x, dim=1), F.normalize(y, dim=1)

    def density(a: Tensor, b: Tensor) -> Tensor:
        near = min(k, len(b))
        return torch.cat([(part @ b.T).topk(near, dim=1).values.mean(dim=1) for part in a.split(chunk)])

    around_y = density(y, x)
    best = torch.cat([(2 * (part @ y.T) - around_y).amax(dim=1) for part in x.split(chunk)])
    return float((best - density(x, y)).mean())
