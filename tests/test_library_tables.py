"""The figures of docs/library.md are those of the committed results."""

from __future__ import annotations

import pytest

from benchmarks import library_tables


@pytest.mark.parametrize("name", library_tables.TABLES)
def test_a_table_of_the_page_is_that_of_the_results(name: str) -> None:
    table = library_tables.TABLES[name]()
    assert table.count("\n") > 3
    page = library_tables.PAGE.read_text(encoding="utf-8")
    assert f"<!-- table: {name} -->\n{table}<!-- /table -->\n" in page, (
        "run python -m benchmarks.library_tables"
    )
