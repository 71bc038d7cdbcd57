"""The local-level model as one multivariate normal distribution: the reference for the filter and the smoothing pass."""

import numpy as np

from ldpstream.mechanisms.arguments import FloatArray


class DenseLevel:
    """The model of one value over all steps, for one q. The level has a flat prior at every step where the level starts anew.

    Args:
        q: variance of the level's change in a step.
        fresh: (n_steps,) variance of the noise that is independent from step to step.
        lasting: variance of the noise that is the same at every step.
        starts: steps where the level starts anew, in addition to step 0.
    """

    def __init__(self, q: float, fresh: FloatArray, lasting: float = 0.0, starts: tuple[int, ...] = ()) -> None:
        steps = np.arange(len(fresh))
        segment = sum((steps >= start).astype(int) for start in starts) + np.zeros(len(fresh), int)
        self.flat = np.eye(segment.max() + 1)[segment]
        first = np.array([np.flatnonzero(segment == each)[0] for each in segment])
        same = segment[:, None] == segment[None, :]
        self.walk = np.where(same, q * (np.minimum.outer(steps, steps) - first), 0)
        self.noise = lasting + np.diag(fresh)

    def levels(self, observed: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the expectation and the variance of all levels given all observations; NaN means no observation."""
        seen = ~np.isnan(observed)
        flat = self.flat[seen]
        inverse = np.linalg.inv((self.walk + self.noise)[np.ix_(seen, seen)])
        spread = np.linalg.inv(flat.T @ inverse @ flat)
        start = spread @ flat.T @ inverse @ observed[seen]
        gain = self.walk[:, seen] @ inverse
        rest = self.flat - gain @ flat
        mean = self.flat @ start + gain @ (observed[seen] - flat @ start)
        return mean, np.diag(self.walk - gain @ self.walk[seen] + rest @ spread @ rest.T)

    def last(self, observed: FloatArray) -> tuple[float, float]:
        """Returns expectation and variance of the level at the last step of `observed`, given all of `observed`."""
        part = self.upto(len(observed))
        mean, variance = part.levels(observed)
        return float(mean[-1]), float(variance[-1])

    def next(self, observed: FloatArray) -> tuple[float, float]:
        """Returns expectation and variance of the next observation."""
        part = self.upto(len(observed) + 1)
        seen = np.append(~np.isnan(observed), False)
        inverse = np.linalg.inv((part.walk + part.noise)[np.ix_(seen, seen)])
        flat, own = part.flat[seen], (part.walk + part.noise)[-1]
        spread = np.linalg.inv(flat.T @ inverse @ flat)
        start = spread @ flat.T @ inverse @ observed[seen[:-1]]
        gain = own[seen] @ inverse
        rest = part.flat[-1] - gain @ flat
        mean = part.flat[-1] @ start + gain @ (observed[seen[:-1]] - flat @ start)
        return float(mean), float(own[-1] - gain @ own[seen] + rest @ spread @ rest)

    def upto(self, steps: int) -> "DenseLevel":
        """Returns the model of the first `steps` steps."""
        part = object.__new__(DenseLevel)
        part.flat = self.flat[:steps, self.flat[:steps].any(axis=0)]
        part.walk, part.noise = self.walk[:steps, :steps], self.noise[:steps, :steps]
        return part
