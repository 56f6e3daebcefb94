"""A world in which the truth is known, its tokenizer and its base model, for demos, tests and ablations in seconds."""

from pathlib import Path

from lightning_dr.toy.verifier import TOY_RULES, ToyVerifier
from lightning_dr.toy.world import ToyQuality, ToyRubrics, ToyWorld

BASE = Path(__file__).parent / "base"
"""The shipped base model; ``name_or_path: toy`` names it."""

__all__ = ["BASE", "TOY_RULES", "ToyQuality", "ToyRubrics", "ToyVerifier", "ToyWorld"]
