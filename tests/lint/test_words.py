"""The word check finds private words where people read, and nowhere else."""

from textwrap import dedent

import pytest
from tests.lint import words


def found(path) -> list[tuple[int, str]]:
    return [(one.line, one.word) for one in words.in_module(path)]


@pytest.fixture
def module(tmp_path):
    def write(text: str):
        path = tmp_path / "module.py"
        path.write_text(dedent(text))
        return path

    return write


def test_errors_are_checked_with_their_f_strings(module):
    assert found(module("""raise LakeError(f"{lake}: the books of {source} are wrong")""")) == [(1, "books")]


def test_errors_made_before_they_are_raised_are_checked(module):
    assert found(module("""error = UsageError("there is no such room")""")) == [(1, "room")]


def test_help_texts_of_options_and_commands_are_checked(module):
    text = '''
        @click.command()
        @click.option("--every", help="Read the next portion.")
        def ingest():
            """Build tables.

            Does it anew.
            """
    '''
    assert sorted(found(module(text))) == [(3, "portion"), (7, "anew")]


def test_column_comments_are_checked(module):
    assert found(module("""column("protocol", pa.string(), "The room: `emp`, …")""")) == [(1, "room")]


def test_printed_lines_are_checked(module):
    assert found(module("""say(f"{count} stretches in quarantine")""")) == [(1, "stretches")]


def test_other_strings_names_and_docstrings_are_not_checked(module):
    text = '''
        """The room."""
        room = "room"
        def build():
            """Build it anew."""
    '''
    assert found(module(text)) == []


def test_text_in_backticks_is_code(tmp_path):
    assert list(words.in_text(tmp_path, "the index `talks`, and ``told`` too")) == []


def test_a_finding_names_file_line_and_the_word_to_write():
    (finding,) = words.in_text(words.ROOT / "README.md", "one\ntwo rooms")
    assert str(finding) == "README.md:2: 'rooms': write protocol"
