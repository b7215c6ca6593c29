"""The table of structured output by method: validity, equality with plain constrained decoding, totals of
both."""

from __future__ import annotations

from specviz.evidence.structured_bench import COLUMNS, HEADER, TITLE, structured_bench, with_table

from ..run.fakes import FakeLoaded

FORMAT = {"type": "regex", "regex": "[a-c]{3}-[0-9]{2,4}!"}


def test_every_answer_of_exact_methods_is_valid_and_equals_plain_decoding():
    left = []
    rows = list(
        structured_bench(
            FakeLoaded(ends=True),
            ["speculative", "jacobi", "superposed"],
            FORMAT,
            ("the cat", "sat"),
            left.append,
        )
    )
    assert [row.method for row in rows] == ["autoregressive", "speculative", "jacobi"]
    assert len(left) == 1 and left[0].startswith("superposed")
    for row in rows:
        assert (row.answers, row.valid, row.equal) == (2, 2, 2) and set(row.record()) == set(COLUMNS)
    records = [row.record() for row in rows]
    page = with_table(
        f"before\n\n{TITLE}\n\nold\n\n{HEADER}\n|---|\n| `old` | 1 |\n\n## After\n\nend",
        records,
        FakeLoaded().facts,
    )
    assert (
        page.count(" 2 of 2 ") == 9
        and " 6 of 6 " in page
        and "old" not in page
        and page.startswith("before\n\n## ")
    )
    assert page.endswith("|\n\n## After\n\nend") and page == with_table(page, records, FakeLoaded().facts)
    assert rows[1].valid_sampled == 2 and rows[0].record()["tokens_per_pass"] == 1.0
