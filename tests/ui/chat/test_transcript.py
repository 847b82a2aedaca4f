"""What the message list shows: texts as they are, figures, sentences, versions."""

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.attachments import Attachment, compose, titled
from app.chat.remote.answer import REMOTE
from app.history.records import AnswerFacts, StoredMessage
from app.request import PartialAnswer
from engine.request import FinishReason
from ui.chat import markdown, transcript
from ui.chat.caption import LEAST_TIMED, caption, summary
from ui.chat.transcript import Appearance

PLAIN, MARKDOWN = Appearance(plain=True, overlay=False), Appearance(plain=False, overlay=True)


def facts(**changed: Any) -> AnswerFacts:
    values = {
        "model": "pocket",
        "drafter": "lookup",
        "leading": "lookup",
        "why": "the prompt repeats itself",
        "prompt_tokens": 10,
        "emitted": 1500,
        "passes": 400,
        "drafted": 2000,
        "accepted": 1100,
        "decode_seconds": 5.0,
        "first_token_seconds": 0.25,
        "speedup": 2.44,
    }
    return AnswerFacts(**(values | changed))


def message(role: str, text: str, key: str = "m", parent: str | None = None) -> StoredMessage:
    return StoredMessage(key, "c", parent, role, text, FinishReason.STOP)


def html(*messages: StoredMessage, look: Appearance = PLAIN, **siblings: list[str]) -> str:
    by_parent = {parent or None: ids for parent, ids in siblings.items()}
    rows = transcript.rows(messages, {"m": facts()}, by_parent, look)
    return "".join(part.get("value") or part["text"] for row in rows for part in row["content"])


@given(st.text(min_size=1))
def test_law_a_question_is_shown_as_it_is(text):
    shown = html(message("user", text)).split('<div class="question">')[1].split("</div>")[0]
    assert unescape(shown) == text


@given(st.text(min_size=1).filter(str.strip))
def test_law_plain_answer_is_shown_and_copied_as_it_is(text):
    shown = html(message("assistant", text))
    assert unescape(shown.split('<div class="plain">')[1].split("</div>")[0]) == text
    copied = shown.split('data-do="copy"')[1].split('data-text="')[1].split('"')[0]
    assert unescape(copied) == text


@given(st.text())
def test_law_title_is_one_short_line(text):
    made = titled(text)
    assert len(made) <= 60
    assert len(made.splitlines()) <= 1


def test_answer_in_markdown_is_left_to_gradio():
    [row, _] = transcript.rows([message("assistant", "**a** < b")], {}, {}, MARKDOWN)
    assert row["content"] == [{"type": "text", "text": "**a** &lt; b"}]


SHOWN, WITHIN = "\ufdd0{}\ufdd1", "\ufdd2{}\ufdd3"  # around formulas


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("area $x^2$ and \\(y\\).", f"area {WITHIN.format('x^2')} and {WITHIN.format('y')}."),
        ("it costs $5 and $6", "it costs $5 and $6"),
        ("$5-$6 or US$7, 8$", "$5-$6 or US$7, 8$"),
        (r"\$x$ y", r"\$x$ y"),
        ("`$x$` and $z$", f"`$x$` and {WITHIN.format('z')}"),
        ("```\n$y$ <b>\n```\n$z$", f"```\n$y$ <b>\n```\n{WITHIN.format('z')}"),
        ("```\n$y$ <b> still open", "```\n$y$ <b> still open"),
        ("~~~\n<b> ~a~\n~~~\n<b>", "~~~\n<b> ~a~\n~~~\n&lt;b>"),
        ("$$a < b$$ \\[c\\]", f"{SHOWN.format('a < b')} {SHOWN.format('c')}"),
        ("`\\(` and `\\)`, `$$` and `$$`", "`\\(` and `\\)`, `$$` and `$$`"),
        ("- a\n\n  ```cpp\n  cpp<int>\n  ```", "- a\n\n  ```c\n  cpp<int>\n  ```"),
        ("$$ open <b>", "$$ open &lt;b>"),
        ("std::vector<int> v;", "std::vector&lt;int> v;"),
        ("`vector<int>` ``a ` <b>`` <b>", "`vector<int>` ``a ` <b>`` &lt;b>"),
        ("<div>\n\nMap<String, List<T>>", "&lt;div>\n\nMap&lt;String, List&lt;T>>"),
        ("a <think> b `<think>` </think>", "a &lt;think> b `<think>` &lt;/think>"),
        ("<!-- note --> &lt; &amp; AT&T", "&lt;!-- note --> &amp;lt; &amp;amp; AT&T"),
        ("(~2000 m) (~5000 m) ~~gone~~", "(&#126;2000 m) (&#126;5000 m) ~~gone~~"),
        ("|a|b|\n|-|-|\n|x<br>y|<b>|\n\nuse <br>", "|a|b|\n|-|-|\n|x<br>y|&lt;b>|\n\nuse &lt;br>"),
        ("- a\n\n      <b> in code\n\n<b>", "- a\n\n      <b> in code\n\n&lt;b>"),
        ("<https://a.b/~c> [d](<https://e f>)", "<https://a.b/~c> [d](<https://e f>)"),
        ("[d](<e f>) [x](/y) run[0](a)", r"\[d](&lt;e f>) \[x](/y) run\[0](a)"),
        ("[a](javascript:b(1)) [c](#d) [e](mailto:f@g)", r"\[a](javascript:b(1)) \[c](#d) [e](mailto:f@g)"),
        ('<a href="https://a.b">c</a>', '&lt;a href="https://a.b<!---->">c&lt;/a>'),
        (r"\<b> \`<b>`", r"\<b> \`&lt;b>`"),
        (
            "2*3*4 = 24, x*y*z, 2**3 + 3**2",
            "2&#42;3&#42;4 = 24, x&#42;y&#42;z, 2&#42;&#42;3 + 3&#42;&#42;2",
        ),
        ("*a* **b**c the *n*th 2 * 3 * 4", "*a* **b**c the *n*th 2 * 3 * 4"),
        ("* a\n* **b**\n* `2*3*4`", "* a\n* **b**\n* `2*3*4`"),
        ("call __init__ or __main__.py", r"call \_\_init\_\_ or \_\_main\_\_.py"),
        ("`__init__` and __so bold__", "`__init__` and __so bold__"),
        ("![a cat](https://a.b/c.png)", "[a cat](https://a.b/c.png)"),
        (r"C:\a_b\*.txt, \\srv\_x in **D:\y** \\\\", r"C:&#92;a&#95;b&#92;&#42;.txt, &#92;&#92;srv&#92;&#95;x in **D:&#92;y** \\\\"),
        ("![<b>*a*](https://a.b)", "[&#60;b>&#42;a&#42;](https://a.b)"),
        ("[![b*c](https://a.b/c.svg)](https://a.b)", "[b&#42;c](https://a.b)"),
        ("![](https://a.b/c.png 'x')", "[https://a.b/c.png](https://a.b/c.png)"),
        ("![a\nb](https://a.b/c_(d).png) ![](<https://a.b/c d>)", "[a\nb](https://a.b/c_(d).png) [https://a.b/c d](<https://a.b/c d>)"),
        ("![a](//b.c) ![d][e] vec![1]", r"\!\[a](//b.c) \![d][e] vec\![1]"),
        ("![a](data:image/png;base64,AA)", "![a](data:image/png;base64,AA)"),
        ("他说**“你好”**了 と**「はい」**と", "他&#35828;**“你好”**&#20102; &#12392;**「はい」**&#12392;"),
        ("**Note:**text 日本の**強調「a」**です", "**Note:**&#116;ext 日本の**強調「a」**&#12391;す"),
        ("f(x)**y + g(z)**k, a**(b) + c**(d)", "f(x)**y + g(z)**k, a**(b) + c**(d)"),
        (r"$\frac{1}{$ and \(a\\) so", r"$&#92;frac{1}{$ and &#92;(a&#92;&#92;) so"),
        (r"$\text{now} \$5$ see \[1\] \[ \]", WITHIN.format(r"\text{now} \$5") + r" see \[1\] \[ \]"),
        ("\\begin{cases}a<b\\end{cases}", SHOWN.format("\\begin{cases}a<b\\end{cases}")),
        ("\\begin{itemize}<b>\\end{itemize}", "\\begin{itemize}&lt;b>\\end{itemize}"),
        ("|a|b|\n|-|-|\n|`x||y`|2|\n|`1`|`2`|", "|a|b|\n|-|-|\n|`x\\|\\|y`|2|\n|`1`|`2`|"),
        ("see [1]\n\n[1]: https://a.b", "[1]: https://a.b\n\nsee [1]\n\n\\[1]: https://a.b"),
        ("- [a b]: <x> 'y'", "[a b]: <x> 'y'\n\n- \\[a b]: <x> 'y'"),
        ("[note]: two words follow", "[note]: two words follow"),
        ("```\n[1]: x\n![](https://a.b)\n```", "```\n[1]: x\n![](https://a.b)\n```"),
        ("```mermaid\ngraph TD\n```", "```text\ngraph TD\n```"),
    ],
)  # fmt: skip
def test_answers_are_shown_as_written(written, shown):
    assert markdown.shown(written) == shown


@given(st.text(st.sampled_from("$ab \n`\\5<>~&;()[]|-*!{}说。"), max_size=60))
def test_law_only_signs_are_written_otherwise_and_the_marks_of_formulas_are_new(text):
    marks = {"&lt;": "<", "&amp;": "&", **dict.fromkeys("\ufdd0\ufdd1\ufdd2\ufdd3", "")}
    back = re.sub("|".join(marks), lambda found: marks[found[0]], markdown.shown(text))
    back = re.sub(r"&#(\d+);", lambda found: chr(int(found[1])), back)
    bare = re.compile(r"[$()\[\]\\]|&amp;|&lt;|[<~*]")
    assert bare.sub("", back) == bare.sub("", text)


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        (
            "<think>\nhm <b>\n</think>\n\nYes.",
            [("Reasoning", "done", "hm &lt;b>"), (None, None, "Yes.")],
        ),
        ("<think>\nhm", [("Reasoning", "pending", "hm")]),
        ("<think>\n\n</think>\n\nYes.", [(None, None, "Yes.")]),
        ("Write <think>x</think> so.", [(None, None, "Write &lt;think>x&lt;/think> so.")]),
        ("```\n<think>\n```", [(None, None, "```\n<think>\n```")]),
        ("<div><p>Hello", [(None, None, "&lt;div>&lt;p>Hello")]),
        ("    indented", [(None, None, "    indented")]),
    ],
)
def test_only_reasoning_that_begins_an_answer_folds(written, parts):
    *rows, _ = transcript.answering(
        PartialAnswer(written, 2), Appearance(plain=False, overlay=False)
    )
    about = [row.get("metadata", {}) for row in rows]
    shown = [row["content"][0]["text"] for row in rows]
    assert [
        (one.get("title"), one.get("status"), text) for one, text in zip(about, shown, strict=True)
    ] == parts


def test_attached_files_are_named_next_to_the_question():
    shown = html(message("user", compose("sum it up", [Attachment("notes.txt", "a <b>")])))
    assert '<div class="question">sum it up</div>' in shown
    assert "notes.txt" in shown
    assert "a &lt;b&gt;" in shown


def test_versions_are_counted_and_lead_to_each_other():
    answer = message("assistant", "b", "m", "q")
    shown = html(answer, q=["l", "m"])
    assert "2 / 2" in shown
    assert 'data-do="show" data-id="l"' in shown
    assert "choice" not in html(answer)


def test_running_answer_has_its_source_only_for_the_overlay():
    written = PartialAnswer("abc", 2, ((0, 2),))
    [_, plain] = transcript.answering(written, PLAIN)
    [_, coloured] = transcript.answering(written, MARKDOWN)
    assert "data-spans" not in plain["content"][0]["value"]
    assert 'data-source="abc" data-spans="0-2"' in coloured["content"][0]["value"]
    assert "Reading" in transcript.answering(PartialAnswer(), PLAIN)[0]["content"][0]["value"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({}, "2.4\u00d7 faster than plain decoding: 1,100 of 1,500 tokens were copied from your text."),
        ({"leading": "chain"}, "2.4\u00d7 faster than plain decoding: 1,100 of 1,500 tokens were guessed by the small draft model."),
        ({"leading": "new one"}, "2.4\u00d7 faster than plain decoding: 1,100 of 1,500 tokens were guessed correctly."),
        ({"speedup": 1.02}, "As fast as plain decoding: 1,100 of 1,500 tokens were copied from your text."),
        ({"speedup": 0.8}, "0.8\u00d7 the speed of plain decoding, though 1,100 of 1,500 tokens were copied from your text."),
        ({"speedup": None}, "1,100 of 1,500 tokens were copied from your text."),
        ({"passes": LEAST_TIMED - 1}, "1,100 of 1,500 tokens were copied from your text."),
        ({"passes": LEAST_TIMED}, "2.4\u00d7 faster than plain decoding: 1,100 of 1,500 tokens were copied from your text."),
        ({"accepted": 0}, "No guessed token was right."),
        ({"drafted": 0, "drafter": "none"}, "Plain decoding, as you chose."),
        ({"drafted": 0, "drafter": "auto"}, "Plain decoding: drafting was not faster here."),
    ],
)  # fmt: skip
def test_caption_says_in_one_sentence_what_drafting_did(changed, sentence):
    assert summary(facts(**changed)) == sentence


def test_caption_has_the_figures_and_the_reason():
    shown = caption(facts(), FinishReason.STOP)
    for part in (
        "Lookup",
        "2.4\u00d7 plain",
        "300 tokens/s",
        "first token 250 ms",
        "1,100/2,000 drafted",
        "3.8 tokens/pass",
        "The prompt repeats itself.",
    ):
        assert part in shown
    assert "near ties" not in shown
    assert "near ties decoded again: 3" in caption(facts(near_ties=3), FinishReason.STOP)
    plain = caption(facts(drafter="none", leading="none", drafted=0), FinishReason.STOP)
    assert "drafted" not in plain
    assert "\u00d7" not in plain
    assert "\u00d7" not in caption(facts(passes=LEAST_TIMED - 1), FinishReason.STOP)


def test_what_is_not_about_speed_stays_where_the_lines_are_hidden():
    for kept in (
        caption(facts(drafter=REMOTE), FinishReason.STOP),
        caption(facts(), FinishReason.LENGTH),
        caption(None, None),
    ):
        assert 'class="about told"' in kept
    assert 'class="about"' in caption(facts(), FinishReason.STOP)


def test_caption_says_how_the_answer_ended():
    assert "Stopped by you." in caption(facts(), FinishReason.CANCELLED)
    assert "after 1,500 tokens." in caption(facts(), FinishReason.LENGTH)
    assert "Slipstream ended" in caption(None, None)
    assert "nothing was measured" in caption(None, FinishReason.STOP)


AGAIN_AND_AGAIN = "The lighthouse guides the ships at night. " * 20


def test_an_answer_that_repeats_itself_says_so_while_it_is_written_and_later():
    [_, running] = transcript.answering(PartialAnswer(AGAIN_AND_AGAIN, 200), PLAIN)
    assert "it repeats itself" in running["content"][0]["value"]
    assert "This answer repeats itself" in html(message("assistant", AGAIN_AND_AGAIN))
    ended = replace(message("assistant", AGAIN_AND_AGAIN * 3), finish_reason=FinishReason.CANCELLED)
    assert "Stopped, as it only repeated itself." in html(ended)
    assert "Stopped by you" not in html(ended)
    asked = message("user", f"Repeat: {AGAIN_AND_AGAIN}", "q")
    assert "This answer repeats" not in html(asked, message("assistant", AGAIN_AND_AGAIN))


def test_caption_of_a_broken_answer_has_the_sentence_and_escapes_it():
    shown = caption(facts(error="the <engine> ended"), FinishReason.ERROR)
    assert "The &lt;engine&gt; ended." in shown


def test_under_auto_the_figures_name_the_drafter_that_brought_most():
    shown = caption(facts(drafter="auto", leading="suffix"), FinishReason.STOP)
    assert "<b>Auto: suffix lookup</b>" in shown
