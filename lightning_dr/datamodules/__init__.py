"""Prompts and ranked answers, batch by batch."""

from .coevolution import CoEvolutionDataModule
from .nectar import NectarAnchorDataModule
from .prompts import PromptDataModule
from .sources import BadRowError
from .stream import RoundDataModule

__all__ = ["BadRowError", "CoEvolutionDataModule", "NectarAnchorDataModule", "PromptDataModule", "RoundDataModule"]
