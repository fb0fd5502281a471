"""The reference page of codes, docs/codes.md, made from the message catalogue.

python -m grader.codes > docs/codes.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from harness.messages import GROUPS, Message

HEAD = """# Codes

What stands beside a failed check, what it means, and how to mend it. A code is named only where the submission's own outputs
show it; a course may word it otherwise in its rubric, and its meaning never changes. Sections are the chapter's.

This page is made from the message catalogue: `python -m grader.codes > docs/codes.md`.
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([HEAD, *(part for title, group in GROUPS.items() for part in _group(title, group))])


def _group(title: str, group: dict[str, Message]) -> Iterator[str]:
    yield f"## {title}\n\n| code | what it means | how to mend it | section |\n|---|---|---|---|"
    for code, message in group.items():
        yield f"| `{code}` | **{message.short}.** {_cell(message.says)} | {_cell(message.look)} | {message.chapter} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    print(page(), end="")
