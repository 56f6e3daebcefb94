"""The frozen verifier: reads yes or no from next-token probabilities, without decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..branches import Tree
from ..prompts import render_conversation
from ..records import Prompt
from ..verdict import verdict_probabilities, yes_no_token_ids
from .backbone import Backbone, BackboneConfig
from .choices import branching_tree, load_branching, read_ends


class LLMVerifier(nn.Module):
    """Answers each item for each response by the probability of yes against no as the next token.

    The conversation x, y is computed once; the questions are its branches.

    Args:
        verdict: ``"hard"``: 1 where P(yes) ≥ 1/2, else 0. ``"probability"``: P(yes) among yes and no. Not given in the source.
        min_mass: A verdict with less total probability on yes and no is unreadable (NaN). The mass is logged either way.
        template: The prompt of the verifier: a bundled name or a path.
        backbone: A model of its own; by default the shared base with its adapters off.
    """

    def __init__(
        self,
        verdict: Literal["hard", "probability"] = "hard",
        min_mass: float = 0.0,
        template: str = "verifier",
        backbone: BackboneConfig | None = None,
    ) -> None:
        super().__init__()
        if verdict not in ("hard", "probability"):
            raise ValueError(f"`verdict` must be 'hard' or 'probability', got {verdict!r}.")
        if not 0 <= min_mass < 1:
            raise ValueError(f"`min_mass` must be in [0, 1), got {min_mass}.")
        self.verdict = verdict
        self.min_mass = min_mass
        self.template = load_branching(template, "question", needed=["response"], usual=["prompt"])
        self.own = backbone
        self.metrics: dict[str, float] = {}

    def attach(self, shared: Backbone) -> None:
        """Use the shared base, or load the verifier's own model."""
        self.backbone = shared if self.own is None else Backbone(self.own).requires_grad_(False).eval()
        self.yes_ids, self.no_ids = yes_no_token_ids(dict(enumerate(self.backbone.pieces)))

    def verify(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Verifier.verify`; ``metrics`` then holds the mean and lowest mass on yes and no."""
        trees = [
            self.tree(prompt, response, asked)
            for prompt, texts, asked in zip(prompts, responses, questions, strict=True)
            if asked
            for response in texts
        ]
        yes, mass = read_ends(self.backbone, trees, self._read, 2).unbind(-1)
        if len(mass):
            self.metrics = {"verifier/yes_no_mass": mass.mean().item(), "verifier/yes_no_mass_min": mass.min().item()}
        verdicts = (yes >= 0.5).float() if self.verdict == "hard" else yes
        verdicts = torch.where(torch.isnan(yes) | (mass < self.min_mass), torch.nan, verdicts)
        sizes = [(len(texts), len(asked)) for texts, asked in zip(responses, questions, strict=True)]
        parts = verdicts.split([rows * columns for rows, columns in sizes])
        return [part.view(rows, columns) for part, (rows, columns) in zip(parts, sizes, strict=True)]

    def tree(self, prompt: Prompt, response: str, questions: Sequence[str]) -> Tree:
        """The conversation x, y is the prefix, and the questions are branches that end where the answer begins."""
        values = {"prompt": render_conversation(prompt.messages), "response": response}
        return branching_tree(self.backbone, self.template, values, "question", questions)

    def _read(self, logits: Tensor) -> Tensor:
        """P(yes) and the mass on yes and no side by side ``[c, 2]``."""
        return torch.stack(verdict_probabilities(logits, self.yes_ids, self.no_ids), -1)
