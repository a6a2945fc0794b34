"""FIELD_CASES.md lists every field case with the tests that hold it."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SECTIONS = (TESTS / "FIELD_CASES.md").read_text(encoding="utf-8").split("\n## F")[1:]


def by_case():
    """Tests named after a field case: a set of (file, test) for each number."""
    found = {}
    for path in TESTS.glob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            name = node.name if isinstance(node, ast.FunctionDef) else ""
            if match := re.match(r"test_f(\d\d)_", name):
                found.setdefault(int(match[1]), set()).add((path.name, name))
    return found


def listed(section):
    """The same of a section of the list."""
    file, tests = "", set()
    for line in section.splitlines():
        if match := re.fullmatch(r"- `(.*)`", line):
            file = match[1]
        if match := re.fullmatch(r"  - `(.*)`", line):
            tests.add((file, match[1]))
    return tests


def test_there_are_thirty_two_cases_with_a_line_and_a_test_each():
    assert [int(section[:2]) for section in SECTIONS] == list(range(1, 33))
    assert by_case().keys() == set(range(1, 33))
    for section in SECTIONS:
        assert len(section.split("\n\n")[1]) > 20, f"F{section[:2]} has no line"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"F{section[:2]}")
def test_the_list_names_the_tests_of_a_case(section):
    found = by_case()[int(section[:2])]
    assert listed(section) == found, "write these tests into FIELD_CASES.md, or take them out"
