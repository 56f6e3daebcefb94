"""The frozen verifier: reads yes or no from next-token probabilities, without decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ..branches import Tree
from ..prompts import load_template, render_conversation
from ..records import Prompt
from ..verdict import verdict_probabilities, yes_no_token_ids
from .backbone import Backbone, BackboneConfig

QUESTION = "<question-goes-here>"


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
        self.template = load_template(template, needed=["response", "question"], usual=["prompt"])
        if sum(text.count("{question}") for _, text in self.template.sections) > 1:
            raise ValueError(
                f"Template {self.template.name!r} must use {{question}} once: what stands before it is shared by all questions."
            )
        self.own = backbone
        self.metrics: dict[str, float] = {}

    def attach(self, shared: Backbone) -> None:
        """Use the shared base, or load the verifier's own model."""
        self.backbone = shared if self.own is None else Backbone(self.own).requires_grad_(False).eval()
        self.yes_ids, self.no_ids = yes_no_token_ids(dict(enumerate(self.backbone.pieces)))

    @torch.no_grad()
    def verify(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], questions: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Verifier.verify`; ``metrics`` then holds the mean and lowest mass on yes and no."""
        trees = [
            self.tree(prompt, response, asked)
            for prompt, texts, asked in zip(prompts, responses, questions, strict=True)
            if asked
            for response in texts
        ]
        count = sum(len(tree.branches) for tree in trees)
        answers = torch.empty(count, 2)
        with self.backbone.active(None):
            for pack in self.backbone.packs(trees):
                found = self.backbone.map_end_logits(
                    pack, lambda logits: torch.stack(verdict_probabilities(logits, self.yes_ids, self.no_ids), -1)
                )
                answers[list(pack.owners)] = found.cpu()
        yes, mass = answers.unbind(-1)
        if count:
            self.metrics = {"verifier/yes_no_mass": mass.mean().item(), "verifier/yes_no_mass_min": mass.min().item()}
        verdicts = (yes >= 0.5).float() if self.verdict == "hard" else yes
        verdicts = torch.where(torch.isnan(yes) | (mass < self.min_mass), torch.nan, verdicts)
        sizes = [(len(texts), len(asked)) for texts, asked in zip(responses, questions, strict=True)]
        parts = verdicts.split([rows * columns for rows, columns in sizes])
        return [part.view(rows, columns) for part, (rows, columns) in zip(parts, sizes, strict=True)]

    def tree(self, prompt: Prompt, response: str, questions: Sequence[str]) -> Tree:
        """The conversation x, y is the prefix, and the questions are branches that end where the answer begins."""
        values = {"prompt": render_conversation(prompt.messages), "response": response}
        marker = QUESTION
        while marker in self.backbone.without_special_tokens(values["prompt"] + response):
            marker += "?"
        prefix, _, ending = self.backbone.render(self.template.render(**values, question=marker)).partition(marker)
        clean = [self.backbone.without_special_tokens(question) for question in questions]
        return Tree(self.backbone.tokenize(prefix), tuple(self.backbone.tokenize(question + ending) for question in clean))
