"""Tables of a million rows: what they keep in memory, and columns that read like lists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress.data.compact import RowNames, TextColumn

ROWS = 1_000_000
MEASURE = """
import sys
from pathlib import Path
from compress.data.base import open_dataset

def resident():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024

open_dataset(sys.argv[1])
before = resident()
data = open_dataset(sys.argv[2])
assert len(data) == int(sys.argv[3]) and data[len(data) - 1].value.endswith("in words"), data[len(data) - 1]
data.fingerprint
print(resident() - before)
"""


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)))), st.slices(12))
def test_a_column_of_texts_reads_like_a_list(texts: list[str], part: slice) -> None:
    column = TextColumn()
    for text in texts:
        column.append(text)
    assert list(column) == texts
    assert column[part] == texts[part]
    assert texts == [] or column[-1] == texts[-1]
    with pytest.raises(IndexError):
        column[len(texts)]


def test_row_names_are_texts() -> None:
    names = RowNames()
    for row in (2, 3, 10**12):
        names.append(row)
    assert list(names) == ["2", "3", "1000000000000"]
    assert names[1:] == ["3", "1000000000000"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's count of resident memory")
def test_a_million_rows_take_little_more_than_their_text(tmp_path: Path) -> None:
    small, large = tmp_path / "small.csv", tmp_path / "large.csv"
    row = "{number},a film that is told in words,{label}\n"
    for path, rows in ((small, 2), (large, ROWS)):
        with path.open("w") as file:
            file.write("number,text,label\n")
            file.writelines(row.format(number=number, label="good" if number % 3 else "bad") for number in range(rows))
    command = [sys.executable, "-c", MEASURE, str(small), str(large), str(ROWS)]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    # As Python objects the texts alone would take 80 bytes a row, and the rows' names 56.
    assert grown < 110 * ROWS, grown
