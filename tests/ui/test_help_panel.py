"""Help topics: read from Markdown files, whatever these are."""

from pathlib import Path

from ui.help_panel import FOLDER, PANEL, SHORTCUTS, read_topics, topics


def test_a_topic_has_title_summary_and_links_of_the_panel(tmp_path: Path) -> None:
    text = "# Two *words*\n\nA `first` line.\n\nMore: [b](b.md#part), [web](https://example.com).\n\n<b>raw</b>\n"
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "without-heading.md").write_text("Only | text")
    second, first = sorted(read_topics(tmp_path), key=lambda one: one.key, reverse=True)
    assert (first.key, first.title, first.summary) == ("a", "Two *words*", "A first line.")
    assert '<a href="#" data-topic="b">' in first.html
    assert '<a href="https://example.com">' in first.html
    assert "&lt;b&gt;raw" in first.html
    assert "<h1>" not in first.html
    assert (second.title, second.summary) == ("Without heading", "Only | text")


def test_every_topic_is_in_the_panel_and_links_only_to_topics() -> None:
    found = read_topics()
    assert len(found) == len(list(FOLDER.glob("*.md")))
    links = {part.split('"')[0] for one in found for part in one.html.split('data-topic="')[1:]}
    assert links <= {one.key for one in found}
    assert all(one.title and one.summary for one in found)
    assert topics().count("<details") == len(found)


def test_every_shortcut_is_in_the_panel() -> None:
    assert PANEL.count("<kbd>") >= len(SHORTCUTS)
    assert PANEL.count("data-keys=") == len(SHORTCUTS)
