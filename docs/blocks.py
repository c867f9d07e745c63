"""Keep `README.zh-CN.md` in step: `python docs/blocks.py` copies every code block of `README.md` into it, in order.

The prose is translated by hand; the blocks are the same bytes in both, since only those of `README.md` are run.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def in_step(source: str, translation: str) -> str:
    """The translation with the blocks of the source. Raises: ValueError when one has more blocks than the other."""
    blocks, places = BLOCK.findall(source), BLOCK.findall(translation)
    if len(blocks) != len(places):
        raise ValueError(f"README.md has {len(blocks)} code blocks, the translation has {len(places)}")
    rest = iter(blocks)
    return BLOCK.sub(lambda _: next(rest), translation)


if __name__ == "__main__":
    target = ROOT / "README.zh-CN.md"
    target.write_text(in_step((ROOT / "README.md").read_text(), target.read_text()))
