import math
import os

import pytest
import torch
import torch.multiprocessing as mp

from lightning_dr.gap import mean_interval, pairwise_accuracy, saturation, score_gap, tie_rate
from lightning_dr.modules.metrics import (
    AnchorAgreement,
    DeadGroups,
    Discriminability,
    IntervalMetric,
    PairwiseAccuracy,
    Saturation,
    ScoreGap,
    TieRate,
)
from lightning_dr.rewards import anchor_agreement, discriminability


def sets(count=7, seed=0):
    """Scores, reference quality and verdicts of response sets, with holes."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, (count, 5), generator=generator) / 3
    reference = torch.randint(0, 3, (count, 5), generator=generator).float()
    verdicts = torch.randint(0, 2, (count, 5, 3), generator=generator).float()
    scores[0, 0] = torch.nan
    scores[1] = 0.5
    reference[2] = 1.0  # no ordered pair: no value
    verdicts[3, 1, 2] = torch.nan
    return scores, reference, verdicts, torch.rand(count, 3, generator=generator) + 0.5


CASES = {
    "gap": (ScoreGap, lambda s, q, v, w: (s, q), lambda s, q, v, w: score_gap(s, q)),
    "accuracy": (PairwiseAccuracy, lambda s, q, v, w: (s, q), lambda s, q, v, w: pairwise_accuracy(s, q)),
    "ties": (TieRate, lambda s, q, v, w: (s, q), lambda s, q, v, w: tie_rate(s, q)),
    "saturation": (Saturation, lambda s, q, v, w: (s,), lambda s, q, v, w: saturation(s)),
    "dead": (DeadGroups, lambda s, q, v, w: (s,), lambda s, q, v, w: torch.tensor([float(len(set(r.tolist())) == 1) for r in s])),
    "disc": (Discriminability, lambda s, q, v, w: (v, w), lambda s, q, v, w: discriminability(v, w)),
    "anchor": (AnchorAgreement, lambda s, q, v, w: (s, -q), lambda s, q, v, w: anchor_agreement(s, -q)),
}


@pytest.mark.parametrize("name", CASES)
def test_in_batches_as_at_once(name):
    kind, arguments, pure = CASES[name]
    metric, data = kind(), sets()
    for start in range(0, 7, 3):
        metric.update(*arguments(*(part[start : start + 3] for part in data)))
    want = mean_interval(pure(*data))
    assert metric.compute() == pytest.approx(tuple(want))
    metric.reset()
    assert metric.compute().size == 0


def test_nothing_was_measured():
    result = IntervalMetric().compute()
    assert result.size == 0
    assert math.isnan(result.mean)


def worker(rank, path, results):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    data, found = sets(), {}
    own = slice(0, 2) if rank == 0 else slice(2, 7)  # not the same number
    empty = IntervalMetric()
    if rank == 1:
        empty.update(torch.tensor([1.0, 2.0]))
    found["nothing on one"] = empty.compute().mean
    for name, (kind, arguments, _) in CASES.items():
        metric = kind()
        metric.update(*arguments(*(part[own] for part in data)))
        found[name] = tuple(metric.compute())
    results.put((rank, found))
    torch.distributed.destroy_process_group()


def test_two_processes_measure_what_one_does(tmp_path):
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    mp.spawn(worker, args=(tmp_path / "store", results), nprocs=2)
    both = dict(results.get() for _ in range(2))
    assert both[0].pop("nothing on one") == both[1].pop("nothing on one") == 1.5
    for name, (_, _, pure) in CASES.items():
        want = tuple(mean_interval(pure(*sets())))
        assert both[0][name] == pytest.approx(want), name
        assert both[1][name] == pytest.approx(want), name
