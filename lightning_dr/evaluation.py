"""From rubrics to scores: ask the verifier every item, and weigh the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightning_dr.records import Completion, Evaluation, Prompt, Responses
from lightning_dr.roles import RubricWriter, Verifier
from lightning_dr.rubric import normalise_question
from lightning_dr.scoring import mean_scores, set_scores


def verify_rubrics(
    draw: Evaluation, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]], anchors: Sequence[Sequence[str]], verifier: Verifier
) -> Evaluation:
    """Ask every different question of a prompt's rubrics once, and lay the verdicts out by rubric and item.

    Args:
        draw: B groups of G rubrics.
        prompts: B prompts.
        responses: B response sets of K texts.
        anchors: B lists of anchor answers of any length, 0 where there is nothing to ask.
        verifier: Answers the items.
    """
    texts = [[*group, *answers] for group, answers in zip(responses, anchors, strict=True)]
    questions = [list(dict.fromkeys(q for rubric in group if rubric.rubric for q in rubric.rubric.questions)) for group in draw.rubrics]
    found = verifier.verify(prompts, texts, questions)
    for verdicts, rows, columns in zip(found, texts, questions, strict=True):
        if verdicts.shape != (len(rows), len(columns)):
            raise ValueError(f"A verifier must return verdicts of shape {(len(rows), len(columns))}, got {tuple(verdicts.shape)}.")
    size = max((len(rubric.rubric.items) for group in draw.rubrics for rubric in group if rubric.rubric), default=1)
    b, g, k, r = len(draw.rubrics), len(draw.rubrics[0]), len(responses[0]), max(map(len, anchors))
    weights, mask = torch.ones(b, g, size), torch.zeros(b, g, size, dtype=torch.bool)
    verdicts_bgkm, anchors_bgrm = torch.full((b, g, k, size), torch.nan), torch.full((b, g, r, size), torch.nan)
    for row, (rubrics, asked, answers) in enumerate(zip(draw.rubrics, questions, found, strict=True)):
        column = {question: number for number, question in enumerate(asked)}
        for number, rubric in enumerate(rubrics):
            if rubric.rubric is None:
                continue
            items = rubric.rubric.items
            where = [column[item.question] for item in items]
            weights[row, number, : len(items)] = torch.tensor([item.weight for item in items])
            mask[row, number, : len(items)] = first_of_each(rubric.rubric.questions)
            verdicts_bgkm[row, number, :, : len(items)] = answers[:k, where]
            anchors_bgrm[row, number, : len(anchors[row]), : len(items)] = answers[k:, where]
    asked_total = sum(answers.numel() for answers in found)
    failures = sum(int(torch.isnan(answers).sum()) for answers in found) / asked_total if asked_total else 0.0
    return replace(
        draw,
        weights_BGM=weights,
        item_mask_BGM=mask,
        verdicts_BGKM=verdicts_bgkm,
        anchor_verdicts_BGRM=anchors_bgrm,
        verdict_failures=failures,
    )


def first_of_each(questions: Sequence[str]) -> Tensor:
    """True for the first occurrence of each question, up to case, blanks and punctuation: a repeated item earns nothing."""
    seen: set[str] = set()
    first = []
    for question in map(normalise_question, questions):
        first.append(question not in seen)
        seen.add(question)
    return torch.tensor(first)


def score_rubrics(draw: Evaluation) -> Evaluation:
    """Scores of C and of the anchor lists under every rubric."""
    return replace(
        draw,
        scores_BGK=set_scores(draw.verdicts_BGKM, draw.weights_BGM, draw.item_mask_BGM),
        anchor_scores_BGR=set_scores(draw.anchor_verdicts_BGRM, draw.weights_BGM, draw.item_mask_BGM),
    )


def rows_by_size(responses: Sequence[Sequence[str]]) -> Iterator[list[int]]:
    """The numbers of the response sets of each size, the smallest sets first: records hold sets of one size."""
    for size in sorted({len(texts) for texts in responses}):
        yield [row for row, texts in enumerate(responses) if len(texts) == size]


def as_responses(responses: Sequence[Sequence[str]]) -> Responses:
    """Texts as response sets that nobody sampled."""
    return tuple(tuple(Completion(text=text) for text in texts) for texts in responses)


class RubricEvaluator:
    """An :class:`~lightning_dr.roles.Evaluator` made of a rubric writer and a verifier: the mean score over G rubrics of each set.

    Args:
        writer: Writes the rubrics from the prompt and the set that is scored.
        verifier: Answers the items.
        num_rubrics: G.
    """

    def __init__(self, writer: RubricWriter, verifier: Verifier, num_rubrics: int = 1) -> None:
        if num_rubrics < 1:
            raise ValueError(f"`num_rubrics` must be at least 1, got {num_rubrics}.")
        self.writer = writer
        self.verifier = verifier
        self.num_rubrics = num_rubrics

    def scores(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> list[Tensor]:
        """See :meth:`lightning_dr.roles.Evaluator.scores`; NaN where no rubric could be read."""
        out: list[Tensor] = [torch.empty(0)] * len(prompts)
        for rows in rows_by_size(responses):
            found = self.evaluate([prompts[row] for row in rows], [responses[row] for row in rows])
            for row, scores in zip(rows, mean_scores(found.scores_BGK), strict=True):
                out[row] = scores
        return out

    def evaluate(self, prompts: Sequence[Prompt], responses: Sequence[Sequence[str]]) -> Evaluation:
        """The rubrics, verdicts and scores behind :meth:`scores`, for sets of the same size."""
        rubrics = self.writer.write(prompts, as_responses(responses), self.num_rubrics)
        return score_rubrics(verify_rubrics(Evaluation(rubrics=rubrics), prompts, responses, [[]] * len(prompts), self.verifier))
