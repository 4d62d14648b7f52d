import re
from pathlib import Path

import pytest
from kernel_bandits_lab.citations import BEHIND, LIBRARY, bibliography, papers
from kernel_bandits_lab.study import catalogue
from pybtex.database import parse_string

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cite.md"
# What BibTeX's styles ask for.
REQUIRED = {
    "inproceedings": {"author", "title", "booktitle", "year"},
    "article": {"author", "title", "journal", "volume", "pages", "year"},
    "book": {"author", "title", "publisher", "year"},
    "misc": {"author", "title", "howpublished", "year"},
    "software": {"author", "title", "version", "year"},
}
AUTHORS = r"[A-Z][\w-]+(?:(?:, [A-Z]\w+)? (?:&|and) [A-Z]\w+| et al\.)"
MENTION = re.compile(rf"({AUTHORS}) (?:\((\d{{4}})\)|(\d{{4}}))")


def fields(entry):
    return {*entry.persons, *(name.lower() for name in entry.fields)}


@pytest.mark.parametrize("key", ["kernel-bandits", *papers()])
def test_an_entry_parses_and_has_what_its_type_requires(key):
    text = LIBRARY if key == "kernel-bandits" else papers()[key].entry
    (found,) = parse_string(text, "bibtex").entries.values()
    assert found.key == key
    assert fields(found) >= REQUIRED[found.type]
    assert all(person.last_names for person in found.persons["author"])
    assert key[-4:] == found.fields["year"] or key in ("kernel-bandits", "su2020slope")


def test_every_entry_of_the_file_is_found():
    text = (ROOT / "lab" / "kernel_bandits_lab" / "references.bib").read_text()
    assert list(parse_string(text, "bibtex").entries) == list(papers())


def test_the_page_shows_the_entries_to_cite():
    text = PAGE.read_text()
    assert LIBRARY in text
    assert papers()["zenati2022"].entry in text


def test_what_a_study_can_name_is_behind_a_paper():
    known = {*catalogue("policy"), *catalogue("environment"), *catalogue("kernel, radius or rule")}
    assert set(BEHIND) <= known
    assert {key for keys in BEHIND.values() for key in keys} <= set(papers())
    assert next(iter(parse_string(bibliography(BEHIND), "bibtex").entries)) == "kernel-bandits"


def test_every_paper_that_is_mentioned_has_an_entry():
    headings = {paper.heading.partition(":")[0].replace(",", "") for paper in papers().values()}
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py"), ROOT / "README.md"]
    mentions = {
        f"{found[1]} {found[2] or found[3]}".replace(",", "")
        for file in files
        for found in MENTION.finditer(re.sub(r"\s+", " ", file.read_text()))
    }
    assert mentions - headings == set()
    assert len(mentions) > 20
