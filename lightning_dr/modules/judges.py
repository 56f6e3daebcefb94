"""Language models as judges: evaluators that read a score from next-token probabilities, with no rubric of yes/no items to verify."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..branches import Tree
from ..evaluation import as_responses, rows_by_size
from ..prompts import render_conversation
from ..records import Prompt, RubricDraw
from ..roles import RubricWriter, unattached
from ..rubric import render_rubric
from ..scoring import mean_scores
from .backbone import Backbone, BackboneConfig
from .choices import ChoiceReader, branching_tree, load_branching, tuple_tree

HELPFULNESS = "Helpfulness: the response does what the request asks for, is correct, and leaves out nothing that the reader needs."
SKILLS = {
    "Logical Correctness": "the conclusion is right, and each step towards it follows from what came before.",
    "Factuality": "what is said about the world is true, and nothing is made up.",
    "Comprehension": "the response understood what is wanted, stated or implied, and keeps to it.",
    "Completeness": "every part of the request is dealt with, in the depth that it calls for.",
    "Conciseness": "nothing is said that the reader could do without.",
}
"""Some of the twelve skills that FLASK names; the descriptions are ours."""


class Judge:
    """What the judges share: the model that is asked, and when its answer can't be read.

    Args:
        labels: What it may answer.
        min_mass: An answer with less total probability on the labels is unreadable (NaN).
        backbone: A model of its own; by default the shared base with its adapters off.
    """

    def __init__(self, labels: Sequence[str], min_mass: float, backbone: BackboneConfig | None) -> None:
        if not 0 <= min_mass < 1:
            raise ValueError(f"`min_mass` must be in [0, 1), got {min_mass}.")
        self.labels = tuple(labels)
        self.min_mass = min_mass
        self.own = backbone
        self.metrics: dict[str, float] = {}
        """Mean and lowest mass on the labels, of the last call."""
        self._reader: ChoiceReader | None = None

    def attach(self, module: Any) -> None:
        """Use the base of a ``CoEvolutionModule``, or load the judge's own model."""
        self._shared: Backbone = module.backbone
        if self.own is None:
            self._reader = ChoiceReader(self._shared, self.labels)
        elif self._reader is None:
            self._reader = ChoiceReader(Backbone(self.own).requires_grad_(False).eval(), self.labels)

    @property
    def reader(self) -> ChoiceReader:
        """What does the work, once the module is known, on the device of the shared base."""
        if self._reader is None:
            raise unattached(self)
        if self._reader.backbone.device != self._shared.device:
            self._reader.backbone.to(self._shared.device)
        return self._reader

    @property
    def backbone(self) -> Backbone:
        """The model that is asked."""
        return self.reader.backbone

    def ask(self, trees: Sequence[Tree]) -> Tensor:
        """Probabilities of the labels after each of n branches ``[n, L]``; NaN where the answer can't be read."""
        probabilities, mass = self.reader.probabilities(trees)
        if len(mass):
            self.metrics = {"evaluator/label_mass": mass.mean().item(), "evaluator/label_mass_min": mass.min().item()}
        return torch.where((mass < self.min_mass).unsqueeze(-1), torch.nan, probabilities)


class Rater(Judge):
    """A judge whose labels are the numbers 1, …, ``scale``.

    Args:
        scale: The highest number, from 2 to 9: each must be a single token.
        min_mass: See :class:`Judge`.
        backbone: See :class:`Judge`.
    """

    def __init__(self, scale: int, min_mass: float, backbone: BackboneConfig | None) -> None:
        if not 2 <= scale <= 9:
            raise ValueError(f"`scale` must be from 2 to 9, got {scale}: a rating is one digit.")
        super().__init__([str(number) for number in range(1, scale + 1)], min_mass, backbone)
        self.scale = scale

    def rate(self, trees: Sequence[Tree]) -> Tensor:
        r"""The expected rating after each of n branches, brought to [0, 1] ``[n]``.

        .. math:: \frac{\sum_s s\,p(s) - 1}{S - 1}
        """
        return (self.ask(trees) @ torch.linspace(0, 1, self.scale)).clamp(0, 1)


class GEval(Rater):
    """One rating of each response on one criterion: the expectation over the score tokens (G-Eval, arXiv 2303.16634).

    G-Eval lets the model write evaluation steps first and estimates the probabilities from samples; here the criterion is given, and the
    probabilities are read. The conversation is computed once; the responses are its branches.

    Args:
        criterion: What is rated, in words.
        scale: Ratings are 1, …, ``scale``, at most 9.
        template: The prompt of the judge: a bundled name or a path.
        min_mass: An answer with less total probability on the ratings is unreadable (NaN).
        backbone: A model of its own; by default the shared base with its adapters off.
    """

    reads_set = False

    def __init__(
        self,
        criterion: str = HELPFULNESS,
        scale: int = 5,
        template: str = "g_eval",
        min_mass: float = 0.0,
        backbone: BackboneConfig | None = None,
    ) -> None:
        super().__init__(scale, min_mass, backbone)
        if not criterion.strip():
            raise ValueError(f"`criterion` must be text, got {criterion!r}. Say what is to be rated.")
        self.criterion = criterion
        self.template = load_branching(template, "response", needed=[], usual=["prompt", "criterion"], optional=["scale"])

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`: ratings in [0, 1], NaN where one could not be read."""
        trees = [self.tree(prompt, texts) for prompt, texts in zip(prompts, responses, strict=True) if texts]
        return list(self.rate(trees).split([len(texts) for texts in responses]))

    def tree(self, prompt: Prompt, responses: Sequence[str]) -> Tree:
        """Criterion and x are the prefix, the responses the branches."""
        values = {"criterion": self.criterion, "prompt": render_conversation(prompt.messages), "scale": str(self.scale)}
        return branching_tree(self.backbone, self.template, values, "response", responses)


class FLASK(Rater):
    """A rating from 1 to 5 of each response on each skill, and their mean (FLASK, arXiv 2307.10928).

    FLASK picks for each instruction the three skills that matter; here all that are given count, for every prompt. The conversation x, y
    is computed once; the skills are its branches. Where a response has no readable rating on a skill, the mean of its set stands in.

    Args:
        skills: Names and descriptions.
        template: The prompt of the judge: a bundled name or a path.
        min_mass: An answer with less total probability on the ratings is unreadable (NaN).
        backbone: A model of its own; by default the shared base with its adapters off.
    """

    reads_set = False

    def __init__(
        self,
        skills: dict[str, str] = SKILLS,
        template: str = "flask",
        min_mass: float = 0.0,
        backbone: BackboneConfig | None = None,
    ) -> None:
        super().__init__(5, min_mass, backbone)
        if not skills:
            raise ValueError("`skills` must hold at least one skill, got none. Give names with descriptions.")
        self.skills: Mapping[str, str] = dict(skills)
        self.template = load_branching(template, "skill", needed=["response"], usual=["prompt"])

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`: in [0, 1], NaN where no skill could be rated."""
        return [mean_scores(ratings) for ratings in self.ratings(prompts, responses)]

    def ratings(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """The ratings behind :meth:`scores`, in [0, 1]: B tensors ``[skills, len(responses[b])]``, the skills in order."""
        trees = [self.tree(prompt, text) for prompt, texts in zip(prompts, responses, strict=True) for text in texts]
        rows = self.rate(trees).view(-1, len(self.skills))
        return [part.T for part in rows.split([len(texts) for texts in responses])]

    def tree(self, prompt: Prompt, response: str) -> Tree:
        """The conversation x, y is the prefix, the skills are the branches."""
        values = {"prompt": render_conversation(prompt.messages), "response": response}
        skills = [f"{name}: {description}" for name, description in self.skills.items()]
        return branching_tree(self.backbone, self.template, values, "skill", skills)


class ImplicitRubric(Rater):
    """One rating of each response by a judge that sees the whole rubric: RaR with implicit aggregation (arXiv 2507.17746).

    The conversation x, y is computed once; the rubrics are its branches. With several rubrics the score is the mean over those that can be
    read; where a response has no readable rating under one, the mean of its set stands in.

    Args:
        writer: Writes the rubrics; ``None``: the generator of the run.
        num_rubrics: G, the rubrics for each set.
        scale: Ratings are 1, …, ``scale``, at most 9. (RaR rates from 1 to 10, which is no single digit.)
        template: The prompt of the judge: a bundled name or a path.
        min_mass: An answer with less total probability on the ratings is unreadable (NaN).
        backbone: A model of its own; by default the shared base with its adapters off.
    """

    def __init__(
        self,
        writer: RubricWriter | None = None,
        num_rubrics: int = 1,
        scale: int = 5,
        template: str = "implicit_rubric",
        min_mass: float = 0.0,
        backbone: BackboneConfig | None = None,
    ) -> None:
        super().__init__(scale, min_mass, backbone)
        if num_rubrics < 1:
            raise ValueError(f"`num_rubrics` must be at least 1, got {num_rubrics}.")
        self.writer = self._given = writer
        self.num_rubrics = num_rubrics
        self.template = load_branching(template, "rubric", needed=["response"], usual=["prompt"], optional=["scale"])

    def attach(self, module: Any) -> None:
        """Take the base of a ``CoEvolutionModule``, and its generator where no writer was given."""
        super().attach(module)
        self.writer = module.generator if self._given is None else self._given

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`: in [0, 1], NaN for a set none of whose rubrics could be read."""
        rubrics = self.rubrics(prompts, responses)
        sets = list(zip(prompts, responses, rubrics, strict=True))
        trees = [self.tree(prompt, text, written) for prompt, texts, written in sets if written for text in texts]
        parts = self.rate(trees).split([len(texts) * len(written) for _, texts, written in sets])
        return [
            mean_scores(part.view(len(texts), len(written)).T) if written else torch.full((len(texts),), torch.nan)
            for part, (_, texts, written) in zip(parts, sets, strict=True)
        ]

    def rubrics(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[list[str]]:
        """The texts of those of each set's rubrics that could be read; a writer is given sets of the same size at a time."""
        if self.writer is None:
            raise unattached(self)
        found: list[Sequence[RubricDraw]] = [()] * len(prompts)
        for rows in rows_by_size(responses):
            sets = as_responses([responses[row] for row in rows])
            if not sets[0]:
                continue
            written = self.writer.write([prompts[row] for row in rows], sets, self.num_rubrics)
            for row, draws in zip(rows, written, strict=True):
                found[row] = draws
        return [[render_rubric(draw.rubric) for draw in draws if draw.rubric is not None] for draws in found]

    def tree(self, prompt: Prompt, response: str, rubrics: Sequence[str]) -> Tree:
        """The conversation x, y is the prefix, the rubrics are the branches."""
        values = {"prompt": render_conversation(prompt.messages), "response": response, "scale": str(self.scale)}
        return branching_tree(self.backbone, self.template, values, "rubric", rubrics)


class PairwiseJudge(Judge):
    r"""The mean probability that a response is preferred to another one of its set, each pair shown in both orders.

    .. math:: s_i = \operatorname{mean}_{j \ne i} \tfrac12 \left[ p(A \mid y_i, y_j) + p(B \mid y_j, y_i) \right]

    p(A | y, z) is the probability of A against B when y is shown as A and z as B. A judge that likes one place better
    gives every response of a set the same advantage. The conversation and the response that is shown first are computed once; the other
    responses are their branches. There are K(K − 1) questions for a set of K. Of a pair, the conversation alone is shared by both orders.

    Args:
        template: The prompt of the judge: a bundled name or a path.
        min_mass: An answer with less total probability on A and B is unreadable; the pair then counts for neither of the two.
        backbone: A model of its own; by default the shared base with its adapters off.
    """

    def __init__(self, template: str = "pairwise", min_mass: float = 0.0, backbone: BackboneConfig | None = None) -> None:
        super().__init__(("A", "B"), min_mass, backbone)
        self.template = load_branching(template, "second", needed=["first"], usual=["prompt"])
        places = re.findall("{(first|second)}", "".join(text for _, text in self.template.sections))
        if places != ["first", "second"]:
            raise ValueError(f"Template {self.template.name!r} must use {{first}} once, and {{second}} once after it, got {places}.")

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`: in [0, 1], NaN for a response without a comparison that could be read.

        The only response of its set is one of them.
        """
        return [mean_wins(first) for first in self.preferences(prompts, responses)]

    def preferences(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """P(A) against P(B) when response i of a set is shown as A and j as B: B tensors ``[K, K]``, NaN on the diagonal."""
        trees = [tree for prompt, texts in zip(prompts, responses, strict=True) if len(texts) > 1 for tree in self.trees(prompt, texts)]
        sizes = [len(texts) for texts in responses]
        parts = self.ask(trees)[:, 0].split([size * (size - 1) for size in sizes])
        out = []
        for part, size in zip(parts, sizes, strict=True):
            preferred = torch.full((size, size), torch.nan)
            preferred[~torch.eye(size, dtype=torch.bool)] = part
            out.append(preferred)
        return out

    def in_both_orders(self, prompts: Sequence[Prompt], pairs: Sequence[Sequence[str]]) -> list[Tensor]:
        """What the judge says of pairs in one order and in the other: B tensors ``[2, 2]``, orders × responses; a row sums to 1."""
        found = self.preferences(prompts, pairs)
        return [torch.stack([torch.stack([p[0, 1], 1 - p[0, 1]]), torch.stack([1 - p[1, 0], p[1, 0]])]) for p in found]

    def trees(self, prompt: Prompt, texts: Sequence[str]) -> list[Tree]:
        """All ordered pairs of a set: of a pair x is the prefix, else x and the response that is shown first."""
        conversation = render_conversation(prompt.messages)
        if len(texts) == 2:
            orders = [tuple(texts), tuple(reversed(texts))]
            return [tuple_tree(self.backbone, self.template, {"prompt": conversation}, ("first", "second"), orders)]
        return [
            branching_tree(
                self.backbone, self.template, {"prompt": conversation, "first": text}, "second", [*texts[:row], *texts[row + 1 :]]
            )
            for row, text in enumerate(texts)
        ]


def mean_wins(preferred: Tensor) -> Tensor:
    """Mean win probability of each response over the others, both orders averaged.

    Args:
        preferred: ``[K, K]``: the probability that response i beats j when i is shown first; NaN on the diagonal and where unreadable.

    Returns:
        ``[K]``; NaN where a response has no pair that was read in both orders.

    Example:
        >>> mean_wins(torch.tensor([[torch.nan, 0.75], [0.5, torch.nan]]))
        tensor([0.6250, 0.3750])
    """
    return ((preferred + 1 - preferred.T) / 2).nanmean(-1)
