"""The prompts of the roles: template files, filled in one pass.

A template file has sections that start with a line ``--- system ---``, ``--- user ---`` or ``--- assistant ---``, and placeholders such as
``{prompt}``. Values are never looked at again, so a response that spells ``{question}`` or ``--- user ---`` does nothing. Other braces,
such as those of a JSON example, are text. A last section of the assistant is a prefill: the beginning of the text that the model continues.
:meth:`Template.render` returns it as the last message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from lightning_dr.records import Message

FOLDER = Path(__file__).parent / "templates"
PLACEHOLDERS = (
    *("prompt", "responses", "response", "question", "max_items"),
    *("criterion", "skill", "rubric", "first", "second", "scale"),
)
PLACEHOLDER = re.compile("{(" + "|".join(PLACEHOLDERS) + ")}")
BRACED = re.compile(r"{(\w+)}")
SECTION = re.compile(r"^--- (system|user|assistant) ---[ \t]*(?:\n|\Z)", re.MULTILINE)


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Template:
    """Sections of (role, text)."""

    name: str
    sections: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, text: str, name: str) -> Template:
        """Read a template.

        Raises:
            ValueError: If there is no section, text before the first one, the last section is the system's, or a word in braces looks
                like a misspelt placeholder.
        """
        before, *parts = SECTION.split(text)
        if before.strip() or not parts:
            raise ValueError(f"Template {name!r} must start with a line such as `--- user ---`, got {text[:40]!r}.")
        for word in BRACED.findall(text):
            near = get_close_matches(word.lower(), PLACEHOLDERS, n=1, cutoff=0.8)
            if near and word not in PLACEHOLDERS:
                raise ValueError(f"Template {name!r} must not have {{{word}}}, which looks like a misspelt {{{near[0]}}}.")
        sections = tuple((role, body.strip("\n")) for role, body in zip(parts[::2], parts[1::2], strict=True))
        if sections[-1][0] == "system":
            raise ValueError(f"Template {name!r} must end with a user or assistant section, got a system section.")
        return cls(name, sections)

    @classmethod
    def from_file(cls, path: str | Path) -> Template:
        """Read a template file; its errors name the path."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"Template {str(path)!r} must be UTF-8 text, got another byte at position {error.start}. Convert it."
            ) from error
        return cls.parse(text, str(path))

    @property
    def placeholders(self) -> set[str]:
        """The names that must be given to :meth:`render`."""
        return {name for _, text in self.sections for name in PLACEHOLDER.findall(text)}

    @property
    def prefill(self) -> str:
        """The beginning of the text that the model continues; empty where it starts afresh."""
        role, text = self.sections[-1]
        return text if role == "assistant" else ""

    def render(self, **values: str) -> list[Message]:
        """Fill the placeholders in one pass.

        Raises:
            ValueError: If a placeholder has no value.
        """
        missing = self.placeholders - values.keys()
        if missing:
            raise ValueError(f"Template {self.name!r} must not use {sorted(missing)}: this role has values for {sorted(values)} only.")
        return [{"role": role, "content": PLACEHOLDER.sub(lambda found: values[found[1]], text)} for role, text in self.sections]


def load_template(name_or_path: str, needed: Sequence[str] = (), usual: Sequence[str] = (), optional: Sequence[str] = ()) -> Template:
    """A bundled template by name (``generator``, ``verifier``), or a user's file by path.

    Args:
        name_or_path: Which one.
        needed: Placeholders without which it can't do its work.
        usual: Placeholders whose absence is worth a warning.
        optional: Other placeholders that the role has values for.

    Raises:
        FileNotFoundError: If there is neither.
        ValueError: If the template can't be read, lacks a needed placeholder, or has one of another role (where the three
            lists are not all empty).
    """
    bundled = FOLDER / f"{name_or_path}.txt"
    path = bundled if bundled.is_file() else Path(name_or_path)
    if not path.is_file():
        names = sorted(file.stem for file in FOLDER.glob("*.txt"))
        raise FileNotFoundError(f"`template` must be one of {names} or the path of a file, got {name_or_path!r}.")
    template = Template.from_file(path)
    for placeholder in needed:
        if placeholder not in template.placeholders:
            raise ValueError(f"Template {template.name!r} must use {{{placeholder}}}, got {sorted(template.placeholders)} only.")
    known = {*needed, *usual, *optional}
    if known and (foreign := template.placeholders - known):
        raise ValueError(f"Template {template.name!r} must not use {sorted(foreign)}: this role has values for {sorted(known)} only.")
    for placeholder in usual:
        if placeholder not in template.placeholders:
            log.warning("Template %r does not use {%s}: the role does not see it.", template.name, placeholder)
    return template


def render_conversation(messages: Sequence[Message]) -> str:
    """A prompt as text inside another prompt: a single turn as it is, several turns with their speakers.

    Example:
        >>> render_conversation([{"role": "user", "content": "Hi"}])
        'Hi'
    """
    if len(messages) == 1:
        return messages[0]["content"]
    return "\n\n".join(f"{message['role'].capitalize()}: {message['content']}" for message in messages)


def render_responses(texts: Sequence[str]) -> str:
    """A response set as text: one numbered line each while they are short, else one block each.

    Example:
        >>> print(render_responses(["red", "blue"]))
        1. red
        2. blue
    """
    if all("\n" not in text and len(text) <= 200 for text in texts):
        return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))
    return "\n\n".join(f"Response {number}:\n{text}" for number, text in enumerate(texts, start=1))
