"""The output of a process: bounded in memory, whole in the file, whatever comes in whatever pieces."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from agent.tools import process


def spilled(pieces, kept, most):
    """Feed the pieces to an `Output` with small limits; the output and what its file holds."""
    file = io.BytesIO()
    old = process.KEPT, process._MOST_SPILLED
    process.KEPT, process._MOST_SPILLED = kept, most
    try:
        output = process.Output(lambda: file)
        for piece in pieces:
            output.add(piece)
        ends = output.ends()
    finally:
        process.KEPT, process._MOST_SPILLED = old
    return output, ends, file.getvalue()


@given(st.lists(st.binary(max_size=30), max_size=30), st.integers(1, 40))
def test_small_output_is_whole_and_large_output_keeps_its_ends(pieces, kept):
    """For all pieces: what fits is whole; what does not is a true head, a true tail, and a whole file."""
    whole = b"".join(pieces)
    output, (head, tail), file = spilled(pieces, kept, 10**6)
    assert output.size == len(whole) and output.complete
    if output.overflowed:
        assert len(head) == kept and whole.startswith(head)
        assert len(tail) == kept and whole.endswith(tail)
    else:
        assert (head, tail) == (whole, b"")
    assert file == (whole if output.spill else b"")
    assert output.spill or len(whole) <= 2 * kept


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=60))
def test_the_file_is_bounded_too(pieces):
    """Past its limit the file grows no more; it is a prefix of the whole."""
    output, _, file = spilled(pieces, 10, 200)
    assert len(file) < 200 + 30 and b"".join(pieces).startswith(file)
    assert output.complete == (file == b"".join(pieces) or output.spill is None)


def test_descendants_are_found_through_all_generations():
    parents = {2: 1, 3: 2, 4: 3, 5: 1, 6: 5, 7: 4, 8: 8}
    assert process.descendants({2}, parents) == {2, 3, 4, 7}
    assert process.descendants({8}, parents) == {8}
    assert process.descendants(set(), parents) == set()
