"""Callbacks: what is watched, swapped and saved."""

from .adapter_checkpoint import AdapterCheckpoint
from .base import DRCallback
from .checkpoint_swap import CheckpointSwap
from .gap_monitor import GapMonitor
from .item_dropout import ItemDropout
from .progress import RoundProgress
from .rubric_logger import RubricLogger
from .run_summary import RunSummary
from .stale_evaluator import StaleEvaluator
from .static_rubrics import StaticRubrics

__all__ = [
    "AdapterCheckpoint",
    "CheckpointSwap",
    "DRCallback",
    "GapMonitor",
    "ItemDropout",
    "RoundProgress",
    "RubricLogger",
    "RunSummary",
    "StaleEvaluator",
    "StaticRubrics",
]
