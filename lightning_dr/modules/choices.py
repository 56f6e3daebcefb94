"""A question with a few labels for an answer: the tree that asks it, and the next-token probabilities of the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..branches import Tree
from ..prompts import Template, load_template
from .backbone import Backbone

MARKER = "<question-goes-here>"
"""Stands for a branch while the prompt is rendered. No end of it is a beginning of it, so it can't be found half inside other text."""
BLANKS = "▁Ġ"
"""How vocabularies write a blank, beside blanks themselves."""


def label_token_ids(pieces: Sequence[str], labels: Sequence[str], model: str) -> list[list[int]]:
    """All tokens that are each label, but for blanks around it; upper and lower case are not the same.

    Args:
        pieces: The text of every token.
        labels: L different labels.
        model: Its name, for the message.

    Returns:
        L lists of token ids.

    Raises:
        ValueError: If a label has no token, or there are two of it.

    Example:
        >>> label_token_ids([" A", "A", "a", "B", "AB"], ["A", "B"], "m")
        [[0, 1], [3]]
    """
    if len(set(labels)) != len(labels):
        raise ValueError(f"`labels` must be different, got {list(labels)}.")
    found: dict[str, list[int]] = {label: [] for label in labels}
    for token, piece in enumerate(pieces):
        word = piece.strip().strip(BLANKS)
        if word in found:
            found[word].append(token)
    for label, tokens in found.items():
        if not tokens:
            raise ValueError(f"The vocabulary of {model!r} must hold a single token for the label {label!r}, got none. Use another model.")
    return list(found.values())


def choice_probabilities(logits: Tensor, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Probability of each label among the labels, and the total probability on all of them.

    Args:
        logits: Next-token logits ``[..., V]``.
        ids: The tokens of each of L labels.

    Returns:
        Probabilities ``[..., L]`` and mass ``[...]``, float32.

    Example:
        >>> p, mass = choice_probabilities(torch.tensor([0.3, 0.3, 0.2, 0.2]).log(), [[0, 1], [2]])
        >>> [round(value, 4) for value in p.tolist()], round(mass.item(), 4)
        ([0.75, 0.25], 0.8)
    """
    logprobs = logits.float().log_softmax(-1)
    of_labels = torch.stack([logprobs[..., list(tokens)].logsumexp(-1) for tokens in ids], -1)
    return of_labels.softmax(-1), of_labels.logsumexp(-1).exp()


class ChoiceReader:
    """Reads labels from next-token probabilities, without decoding. The adapters are off.

    Args:
        backbone: The model that is asked.
        labels: L different labels, each of which must be a token of the model.

    Raises:
        ValueError: If a label has no token.
    """

    def __init__(self, backbone: Backbone, labels: Sequence[str]) -> None:
        self.backbone = backbone
        self.labels = tuple(labels)
        self.ids = label_token_ids(backbone.pieces, labels, backbone.config.name_or_path)

    def probabilities(self, trees: Sequence[Tree]) -> tuple[Tensor, Tensor]:
        """The answer that follows each branch.

        Args:
            trees: Prefixes with their branches, n in all.

        Returns:
            Probabilities over the labels ``[n, L]`` that sum to 1, and the total probability on them ``[n]``; float32 on the CPU, branch
            after branch and tree after tree.
        """
        found = read_ends(self.backbone, trees, self._read, len(self.labels) + 1)
        return found[:, :-1], found[:, -1]

    def _read(self, logits: Tensor) -> Tensor:
        """Probabilities and mass side by side ``[c, L + 1]``."""
        probabilities, mass = choice_probabilities(logits, self.ids)
        return torch.cat([probabilities, mass.unsqueeze(-1)], -1)


@torch.no_grad()
def read_ends(backbone: Backbone, trees: Sequence[Tree], read: Callable[[Tensor], Tensor], width: int) -> Tensor:
    """What is read off the next-token logits after each branch, with the adapters off.

    Args:
        backbone: The model that is asked.
        trees: Prefixes with their branches, n in all.
        read: Logits ``[c, V]`` -> numbers ``[c, width]``.
        width: How many numbers there are for each branch.

    Returns:
        ``[n, width]``, float32 on the CPU, branch after branch and tree after tree.
    """
    found = torch.empty(sum(len(tree.branches) for tree in trees), width)
    with backbone.active(None):
        for pack in backbone.packs(trees):
            found[list(pack.owners)] = backbone.map_end_logits(pack, read).cpu()
    return found


def load_branching(template: str, branch: str, needed: Sequence[str], usual: Sequence[str] = (), optional: Sequence[str] = ()) -> Template:
    """A template in which the values of one placeholder are the branches of what stands before it.

    Args:
        template: A bundled name or a path.
        branch: The placeholder of the branches.
        needed: See :func:`lightning_dr.prompts.load_template`; ``branch`` is needed too.
        usual: See there.
        optional: See there.

    Raises:
        ValueError: If the template does not use ``branch`` exactly once, or as ``load_template`` does.
    """
    loaded = load_template(template, [*needed, branch], usual, optional)
    if sum(text.count(f"{{{branch}}}") for _, text in loaded.sections) > 1:
        raise ValueError(
            f"Template {loaded.name!r} must use {{{branch}}} once: what stands before it is shared by everything that is put there."
        )
    return loaded


def branching_tree(backbone: Backbone, template: Template, values: Mapping[str, str], branch: str, texts: Sequence[str]) -> Tree:
    """A filled template as a tree: the texts stand in the place of ``branch``, and end where the answer begins.

    Args:
        backbone: Renders and tokenizes.
        template: From :func:`load_branching`.
        values: What the other placeholders stand for.
        branch: The placeholder of the branches.
        texts: One per branch.
    """
    return tuple_tree(backbone, template, values, (branch,), [(text,) for text in texts])


def tuple_tree(
    backbone: Backbone, template: Template, values: Mapping[str, str], branch: Sequence[str], texts: Sequence[Sequence[str]]
) -> Tree:
    """The same with several placeholders that differ from branch to branch: what stands before the first one is shared.

    Nothing that a value or a text says opens a turn, fills a placeholder or moves the place of the branches.

    Args:
        backbone: Renders and tokenizes.
        template: Uses each placeholder of ``branch`` once, in this order.
        values: What the other placeholders stand for.
        branch: The placeholders of the branches.
        texts: One per placeholder, for each branch.
    """
    shared = "".join(backbone.as_plain(message["content"]) for message in template.render(**values, **dict.fromkeys(branch, "")))
    marker = MARKER
    while marker in shared:
        marker += "?"
    prefix, *between = backbone.render(template.render(**values, **dict.fromkeys(branch, marker))).split(marker)
    clean = [[backbone.as_plain(text) for text in branch_texts] for branch_texts in texts]
    ends = ["".join(part for pair in zip(branch_texts, between, strict=True) for part in pair) for branch_texts in clean]
    return Tree(backbone.tokenize(prefix), tuple(backbone.tokenize(text) for text in ends))
