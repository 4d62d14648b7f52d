"""The documentation site builds without a warning, and no link in it leads nowhere."""

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import kernel_bandits as kb

ROOT = Path(__file__).parent.parent


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.pictures = [], set(), []
        self.text = text
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes.get("id"), attributes.get("name")} - {None}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag == "img":
            self.pictures.append(attributes)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # not --quiet, which silences the warnings and with them --strict
    assert finished.returncode == 0, finished.stderr
    assert "WARNING" not in finished.stderr, finished.stderr
    return {path.relative_to(folder): Page(path.read_text()) for path in folder.rglob("*.html")}


def test_every_link_of_the_site_leads_somewhere(site):
    broken = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            missing_page = target.suffix == ".html" and target not in site
            missing_place = parts.fragment and target in site and unquote(parts.fragment) not in site[target].anchors
            if missing_page or missing_place:
                broken.append((str(path), link))
    assert broken == []


def test_every_picture_says_what_it_shows(site):
    pictures = [picture for page in site.values() for picture in page.pictures]
    assert pictures
    assert all(len(picture.get("alt", "")) > 20 for picture in pictures)


def test_names_are_shown_plainly(site):
    assert [str(path) for path, page in site.items() if re.search(r":(class|func|meth|mod|attr):", page.text)] == []


def test_no_private_name_is_shown(site):
    shown = [str(path) for path, page in site.items() if re.search(r"Bases: <code>[^\n]*>_\w+<|_fact\(", page.text)]
    assert shown == []


def test_the_star_of_a_symbol_starts_no_emphasis(site):
    begun = [
        (str(path), text) for path, page in site.items() for text in re.findall(r"<em>([,.;)‖].*?)</em>", page.text)
    ]
    assert begun == []


def test_no_list_ends_up_in_a_paragraph(site):
    swallowed = re.compile(r"<p>(?:(?!</p>).)*?\n(- .{40})", re.DOTALL)
    assert {str(path): item for path, page in site.items() for item in swallowed.findall(page.text)} == {}


def test_nothing_is_loaded_from_elsewhere(site):
    for path, page in site.items():
        for picture in page.pictures:
            assert not urlsplit(picture["src"]).scheme, (path, picture)
        assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=[\"']?(?:https?:)?//", page.text), path


def test_the_navigation_is_short_and_folded():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert len(re.findall(r"^  - ", settings[settings.index("\nnav:") :], re.MULTILINE)) <= 7
    assert "navigation.sections" not in settings
    assert "navigation.expand" not in settings


def test_no_private_name_is_shown_as_a_default(site):
    shown = {(str(path), name) for path, page in site.items() for name in re.findall(r"\b_[A-Z][A-Z_]+\b", page.text)}
    assert shown == set()


def test_papers_are_linked_where_they_are_mentioned(site):
    cite = Path("cite.html")
    assert "calandriello2020" in site[cite].anchors
    batches = [urlsplit(link) for link in site[Path("delayed-rewards.html")].links]
    assert any(link.path == "cite.html" and link.fragment == "calandriello2020" for link in batches)
    policies = [urlsplit(link) for link in site[Path("reference/core.html")].links]
    assert any(link.path == "../cite.html" and link.fragment == "valko2013" for link in policies)


def test_every_public_name_is_in_the_reference(site):
    reference = [page for path, page in site.items() if path.parts[0] == "reference"]
    shown = {anchor.rpartition(".")[2] for page in reference for anchor in page.anchors}
    folders = [module.name for module in pkgutil.iter_modules(kb.__path__) if module.ispkg]
    packages = [kb, *(importlib.import_module(f"kernel_bandits.{name}") for name in folders)]
    listed = {
        name for package in packages for name in getattr(package, "__all__", ()) if callable(getattr(package, name))
    }
    assert listed - shown == set()
