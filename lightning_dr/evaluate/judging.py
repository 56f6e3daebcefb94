"""Ask an evaluator about response sets, in the order or orders in which they are to be shown."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ..modules.backbone import ContextError
from ..modules.random_state import seeded
from ..prompts import Template
from ..records import Prompt
from ..roles import Evaluator
from .journal import Journal, waiting_batches
from .sets import ResponseSet

Orders = tuple[tuple[float, ...], ...]
"""Scores of a set's responses, for each order shown."""

log = logging.getLogger(__name__)


def fill(
    journal: Journal,
    evaluator: Evaluator,
    sets: Sequence[ResponseSet],
    both_orders: bool,
    title: str,
    batch_size: int,
    seed: int,
    device: torch.device,
) -> None:
    """Judge the sets that the journal lacks; see :func:`judge`."""
    for start, rows in waiting_batches(journal, [one.id for one in sets], batch_size, title):
        began = time.perf_counter()
        with torch.no_grad(), seeded(seed + start, device):
            found = judge(evaluator, [sets[row] for row in rows], both_orders)
        seconds = (time.perf_counter() - began) / len(rows)
        journal.add([{"id": sets[row].id, "scores": known(orders), "seconds": seconds} for row, orders in zip(rows, found, strict=True)])


def known(orders: Orders) -> list[list[float | None]]:
    """Scores as JSON, in which there is no NaN."""
    return [[None if math.isnan(score) else score for score in order] for order in orders]


def judge(evaluator: Evaluator, sets: Sequence[ResponseSet], both_orders: bool) -> list[Orders]:
    """Scores of the responses of each set, in the order of the set.

    An evaluator that looks at each response by itself is asked once, and a pairwise judge about a pair in both orders at once. Any other
    one is shown a set in both orders if that is wanted, else in an order that is shuffled by the set's id: many files hold the best
    response first. A set that is longer than the model's context is not judged: its scores are NaN.

    Args:
        evaluator: Scores them.
        sets: N sets.
        both_orders: Show each set as it is and reversed.
    """
    try:
        return ask(evaluator, sets, both_orders)
    except ContextError as error:
        if len(sets) == 1:
            log.warning("%s is not judged. %s", sets[0].id, error)
            return [((math.nan,) * len(sets[0].responses),)]
    return [judge(evaluator, [one], both_orders)[0] for one in sets]


def ask(evaluator: Evaluator, sets: Sequence[ResponseSet], both_orders: bool) -> list[Orders]:
    """See :func:`judge`.

    Raises:
        ContextError: If a set is longer than the model's context.
    """
    prompts = [one.prompt for one in sets]
    if both_orders and hasattr(evaluator, "in_both_orders") and all(len(one.responses) == 2 for one in sets):
        return [as_orders(found) for found in evaluator.in_both_orders(prompts, [one.responses for one in sets])]
    if not getattr(evaluator, "reads_set", True):
        return [as_orders(found.unsqueeze(0)) for found in evaluator.scores(prompts, [one.responses for one in sets])]
    shown = [[order, order[::-1]] if both_orders else [order] for order in (order_of(one, both_orders) for one in sets)]
    rounds = [scores_in_order(evaluator, prompts, sets, [orders[number] for orders in shown]) for number in range(1 + both_orders)]
    return [as_orders(torch.stack(found)) for found in zip(*rounds, strict=True)]


def order_of(one: ResponseSet, as_it_is: bool) -> list[int]:
    """In which order a set is shown first."""
    order = list(range(len(one.responses)))
    if not as_it_is:
        random.Random(one.id).shuffle(order)
    return order


def scores_in_order(
    evaluator: Evaluator, prompts: Sequence[Prompt], sets: Sequence[ResponseSet], orders: Sequence[Sequence[int]]
) -> list[Tensor]:
    """Scores of sets that are shown in some order, put back into the order of the set."""
    found = evaluator.scores(prompts, [[one.responses[place] for place in order] for one, order in zip(sets, orders, strict=True)])
    out = []
    for scores, order in zip(found, orders, strict=True):
        back = torch.empty_like(scores)
        back[list(order)] = scores
        out.append(back)
    return out


def as_orders(scores: Tensor) -> Orders:
    """``[orders, responses]`` as numbers."""
    return tuple(tuple(row) for row in scores.double().tolist())


def describe(part: Any) -> Any:
    """What makes an evaluator what it is: its class and its public settings, as JSON."""
    if part is None or isinstance(part, str | int | float | bool):
        return part
    if isinstance(part, list | tuple | set | frozenset):
        return [describe(value) for value in part]
    if isinstance(part, dict):
        return {str(key): describe(value) for key, value in part.items()}
    if isinstance(part, Template):
        return describe(part.sections)  # where the file lies makes no difference
    if isinstance(part, type) or not (is_dataclass(part) or hasattr(part, "__dict__")):
        return repr(part)
    settings = {item.name: getattr(part, item.name) for item in fields(part)} if is_dataclass(part) else vars(part)
    public = {name: describe(value) for name, value in settings.items() if not name.startswith("_") and name != "metrics"}
    return {"class": f"{type(part).__module__}.{type(part).__qualname__}", **public}
