"""The documents against the program: commands, examples, tables and links are true."""

import json
import re
import shlex
import textwrap
from argparse import ArgumentParser
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from app.settings import POCKET, REAL
from engine.draft_length import LENGTHS
from engine.drafters import DRAFTERS, describe
from engine.request import AUTO
from tests.bundled import ROOT
from tests.house import PROJECT
from tests.processes import run_python
from tests.ui.application import application, run

README = ROOT / "README.md"
HELP = sorted((ROOT / "ui" / "help").glob("*.md"))
GUIDES = [README, *HELP]  # what users read, and type from
PAPERS = [*GUIDES, *sorted(ROOT.glob("C*.md")), *sorted((ROOT / ".github").glob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
WITH_ACTIONS = {"keys", "models"}
ADDRESS = "http://127.0.0.1:7860"
NO_RUN = "no-run"  # in the info string of a block: it is meant for another model


@dataclass(frozen=True)
class Block:
    """A fenced block of a document; ``info`` is what follows its language."""

    paper: str
    language: str
    info: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Each command on one line, without comments; a quoted text may have several lines."""
        found, begun = [], ""
        for line in self.text.replace("\\\n", " ").splitlines():
            begun += f"{line}\n"
            try:
                words = shlex.split(begun, comments=True)
            except ValueError:  # a quotation is open
                continue
            found += [shlex.join(words)] if words else []
            begun = ""
        return found


def blocks(language: str, *papers: Path) -> list[Block]:
    return [
        Block(path.name, name, info.strip(), textwrap.dedent(text))
        for path in papers or GUIDES
        for _, name, info, text in FENCE.findall(path.read_text(encoding="utf-8"))
        if name == language
    ]


def typed(program: str, *, runnable: bool = False) -> list[str]:
    """Every distinct command line of the guides that calls ``program``."""
    found = [
        line
        for block in blocks("console")
        if not (runnable and NO_RUN in block.info)
        for line in (line.partition(" '<' ")[0] for line in block.lines)
        if line.split()[0] == program
    ]
    return list(dict.fromkeys(found))


def mentioned() -> list[str]:
    """Commands within a sentence or a table: not whole, but their names and options must exist."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAPERS)
    found = re.findall(r"`(slipstream(?: [a-z-][^`\n]*)?)`", text)
    return list(dict.fromkeys(found))


def of_command(words: list[str]) -> list[str]:
    """The command that ``words`` begin with, and its action where it has actions."""
    levels = 2 if words[:1] in ([name] for name in WITH_ACTIONS) else 1
    return [word for word in words[:levels] if not word.startswith("-")]


def sent(line: str) -> tuple[str, str | None]:
    """Address and body of a line for curl."""
    words = shlex.split(line)
    address = next(word for word in words if word.startswith("http"))
    return address, words[words.index("-d") + 1] if "-d" in words else None


def rows(paper: Path, heading: str) -> list[list[str]]:
    """The names in the first column of every table whose heading begins so."""
    text = paper.read_text(encoding="utf-8")
    tables = re.findall(rf"^\| {heading} \|[^\n]*\n((?:\|[^\n]*\n)+)", text, re.MULTILINE)
    return [re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) for table in tables]


@pytest.fixture(scope="module")
def parser() -> ArgumentParser:
    """The command's own parser, whatever file it is written in: caught where it begins to parse."""

    class Caught(Exception):
        pass

    def parse_args(self: ArgumentParser, *_: object) -> None:
        raise Caught(self)

    module, name = PROJECT["project"]["scripts"]["slipstream"].split(":")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArgumentParser, "parse_args", parse_args)
        with pytest.raises(Caught) as caught:
            getattr(import_module(module), name)([])
    found: ArgumentParser = caught.value.args[0]
    return found


def helped(parser: ArgumentParser, command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([*command, "--help"])
    assert ended.value.code == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_both_commands_of_a_checkout_have_a_block_of_their_own() -> None:
    texts = [block.text.strip() for block in blocks("console", README)]
    assert "python3 -m app" in texts
    assert "python3 -m app test" in texts


@pytest.mark.parametrize("line", typed("slipstream"))
def test_every_command_line_is_accepted(line: str, parser: ArgumentParser) -> None:
    parser.parse_args(shlex.split(line)[1:])  # leaves with 2 on bad usage, and says why


@pytest.mark.parametrize("line", [*typed("slipstream"), *mentioned()])
def test_every_option_is_one_of_the_commands_help(
    line: str, parser: ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = helped(parser, of_command(line.split()[1:]), capsys)
    options = re.findall(r"(?<=\s)--[a-z-]+", line)
    assert [name for name in options if not re.search(rf"{name}(?![a-z-])", shown)] == []


def test_every_command_is_documented(
    parser: ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = re.findall(r"^    ([a-z-]+) ", helped(parser, [], capsys), re.MULTILINE)
    wanted = {*listed} - WITH_ACTIONS
    for name in WITH_ACTIONS:
        actions = re.findall(r"^    ([a-z-]+)", helped(parser, [name], capsys), re.MULTILINE)
        wanted |= {f"{name} {one}" for one in actions}
    there = {" ".join(of_command(line.split()[1:])) for line in typed("slipstream")}
    assert {"ask", "verify", "models pull"} <= wanted
    assert wanted - there == set()


def test_help_leaves_no_trace(home: Path) -> None:
    done = run_python("from ui.launch import main; main(['--help'])")
    assert done.returncode == 0, done.stderr
    assert not home.exists()


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.paper)
def test_json_is_json(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("line", typed("curl"))
def test_requests_have_a_body_of_json(line: str) -> None:
    address, body = sent(line)
    assert address.startswith(f"{ADDRESS}/")
    assert body is None or json.loads(body)["model"]


def test_modules_that_are_run_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAPERS)
    modules = set(re.findall(r"python[\d.]* -m ([\w.]+)", text))
    assert "app" in modules
    assert [name for name in sorted(modules) if find_spec(name) is None] == []


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_links_lead_somewhere(paper: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", paper.read_text(encoding="utf-8"))
    assert [link for link in links if not (paper.parent / link).exists()] == []


def test_the_readme_is_short_and_leads_to_every_topic() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 180
    assert [path.name for path in HELP if f"(ui/help/{path.name})" not in text] == []


@pytest.mark.parametrize("topic", HELP, ids=lambda path: path.name)
def test_a_topic_begins_with_its_title_and_one_sentence(topic: Path) -> None:
    title, summary, *rest = topic.read_text(encoding="utf-8").split("\n\n")
    assert re.fullmatch(r"# \S.*", title)
    assert re.fullmatch(r"[A-Z][^.]*(?:\.\w[^.]*)*\.", summary)
    assert rest


@pytest.mark.parametrize(
    ("paper", "heading", "registry"),
    [
        ("README.md", "drafter", DRAFTERS),
        ("ui/help/drafters-and-lengths.md", "drafter", DRAFTERS),
        ("ui/help/drafters-and-lengths.md", "policy", LENGTHS),
    ],
)
def test_tables_of_drafters_and_policies_are_the_registries(
    paper: str, heading: str, registry: dict[str, str]
) -> None:
    names = sorted(name for name in registry if name != AUTO and describe(name).listed)
    assert [sorted(found) for found in rows(ROOT / paper, heading)] == [names]


def test_plans_are_those_that_the_command_prints(tmp_path: Path) -> None:
    """Copy the tables of ``slipstream plan --table`` again where the planner has changed."""
    printed = run(tmp_path, "plan", "--table").stdout.splitlines()
    text = (ROOT / "ui" / "help" / "memory-plans.md").read_text(encoding="utf-8")
    shown = [line for line in text.splitlines() if line.startswith("|")]
    assert len(shown) > 20
    assert [line for line in shown if line not in printed] == []


def test_the_version_is_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{PROJECT['project']['version']}]" in changelog


@pytest.mark.parametrize(
    "line", [line for line in typed("slipstream", runnable=True) if " ask " in line]
)
def test_questions_in_the_terminal_are_answered(line: str, tmp_path: Path) -> None:
    for block in blocks("json"):
        if block.info:  # the name of a file that commands read
            (tmp_path / block.info).write_text(block.text, encoding="utf-8")
    answer = run(tmp_path, *shlex.split(line)[1:])
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


def here(text: str, address: str) -> str:
    """What is sent to the server of these tests, which answers with the small model."""
    return text.replace(ADDRESS, address.rstrip("/")).replace(REAL, POCKET)


def test_programs_in_the_documents_get_answers(tmp_path: Path) -> None:
    with application(tmp_path) as app, httpx.Client(timeout=60, trust_env=False) as client:
        for line in typed("curl", runnable=True):
            address, body = sent(here(line, app.address))
            answer = client.request(
                "POST" if body else "GET", address, json=json.loads(body or "null")
            )
            assert answer.status_code == 200, f"{line}\n{answer.text}"
        for block in blocks("python"):
            program = here(block.text, app.address)
            done = run_python(program, cwd=tmp_path, SLIPSTREAM_HOME=str(tmp_path))
            assert done.returncode == 0, f"{block.text}\n{done.stderr}"
            assert done.stdout.strip(), block.text
