"""A mean with its confidence interval, collected over batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from ..gap import MeanInterval, mean_interval


class IntervalMetric(Metric):
    """Collects one value per prompt; computes :func:`lightning_dr.gap.mean_interval`."""

    full_state_update = False
    values: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def update(self, values: Tensor) -> None:
        """Add values ``[n]``; NaN does not count."""
        self.values.append(values)

    def compute(self) -> MeanInterval:
        """Mean, 95% interval and number of values."""
        return mean_interval(dim_zero_cat(self.values))
