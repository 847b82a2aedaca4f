"""Chat templates: found where models keep them, and unable to do harm."""

import json
from pathlib import Path

import pytest

from app.request import Message
from app.text import template
from app.text.named_templates import template_source
from app.text.template import ChatTemplate
from engine.errors import InvalidRequest, ModelUnusable

ASK = [Message("system", "be brief"), Message("user", "hi")]

# From published attacks on loaders of chat templates.
ATTACKS = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').system('touch harm') }}",
    "{{ cycler.__init__.__globals__.os.popen('touch harm').read() }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ lipsum.__globals__['os'].system('touch harm') }}",
    "{{ messages.append(1) }}",
    "{{ range(99999999) | list }}",
)

HARMS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 10 ** (10 ** 9) }}",
    "{{ 'a' * 10 ** 10 }}",
    "{{ 'a'.center(3000000000) }}",
    (
        "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
        "{% endfor %}{{ n.x }}"
    ),
)


@pytest.mark.parametrize(
    ("source", "takes"),
    [
        ("{{ m.reasoning_content }}", True),
        ("{% if 'reasoning_content' in m %}{% endif %}", True),
        ("{{ message.thinking }}", True),
        ("{{ m['thinking'] }}", True),
        ('{{ m.get("reasoning") }}', True),
        ("{% if enable_thinking %}<think>{% endif %}", False),
        ("{{ m.content.split('</think>')[-1] }}", False),
        ("{% if thinking is defined and thinking %}{% endif %}", False),
    ],
)
def test_takes_reasoning(source, takes):
    assert ChatTemplate(source, {}).takes_reasoning is takes


@pytest.mark.parametrize(
    "said",
    [
        "{{ m.content | trim }}{{ {'é': 1} | tojson }}",
        "{{ {'é': 1, 'a': [1]} | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}",
        "{{ ['é'] | tojson(true, 2) }}",
        "{% set n = 1 %}{% generation %}{{ m.content }}\n{% set n = 2 %}  {% endgeneration %}{{ n }}",
    ],
)
def test_renders_as_transformers_does(said: str) -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}\n"
        "    {%- if loop.first %}{% continue %}{% endif %}\n"
        f"[{{{{ m.role }}}}] {said}\n"
        "{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    transformers = pytest.importorskip("transformers.utils.chat_template_utils")
    plain = [{"role": one.role, "content": one.content} for one in ASK]
    expected, _ = transformers.render_jinja_template(
        [plain], chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(ASK) == expected[0]


class TestLoading:
    def test_its_own_file_comes_first(self, tmp_path: Path) -> None:
        (tmp_path / "chat_template.jinja").write_text("file{{ eos_token }}")
        config = {"chat_template": "config", "eos_token": {"content": "</s>"}, "bos_token": None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        assert ChatTemplate.load(tmp_path).render(ASK) == "file</s>"

    @pytest.mark.parametrize(
        "written", ["plain", [{"name": "tool", "template": "no"}, {"name": "default", "template": "plain"}]]
    )  # fmt: skip
    def test_the_configuration_may_hold_one_or_several(self, tmp_path: Path, written) -> None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": written}))
        assert ChatTemplate.load(tmp_path).render(ASK) == "plain"

    def test_a_base_model_has_none_unless_a_person_gives_one(self, tmp_path: Path) -> None:
        assert ChatTemplate.load(tmp_path) is None
        given = ChatTemplate.load(tmp_path, "plain")
        assert given is not None
        assert given.render(ASK) == "plain"

    @pytest.mark.parametrize("foreign", [False, True])
    @pytest.mark.parametrize(
        "source", ["{% if %}", "{% for a in b %}" * 30 + "{% endfor %}" * 30, f"{{{{ {'9' * 5000} }}}}"]
    )  # fmt: skip
    def test_a_template_that_is_no_template(self, foreign: bool, source: str) -> None:
        with pytest.raises(ModelUnusable, match="not valid Jinja"):
            ChatTemplate(source, {}, foreign=foreign)

    @pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
    def test_a_blank_one_hides_no_other(self, tmp_path: Path, name: str) -> None:
        (tmp_path / "chat_template.json").write_text('{"chat_template": "other"}')
        (tmp_path / name).write_text(" \n" if name.endswith("jinja") else '{"chat_template": ""}')
        assert ChatTemplate.load(tmp_path).render(ASK) == "other"

    def test_the_mark_of_an_editor_is_no_part_of_it(self, tmp_path: Path) -> None:
        """A model would have read it before every conversation."""
        for file in (tmp_path / "chat_template.jinja", tmp_path / "mine"):
            file.write_text("plain", encoding="utf-8-sig")
        assert ChatTemplate.load(tmp_path).render(ASK) == "plain"
        assert template_source(str(tmp_path / "mine")) == "plain"


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_templates_are_stopped(
    attack: str, foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="refuses this conversation"):
        ChatTemplate(attack, {}, foreign=foreign).render(ASK)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{{ '%(a)s' % {} }}", "KeyError: 'a'"),
        ("{{ '{}{}'.format(1) }}", "IndexError"),
        ("{{ 'a'.encode('junk') }}", "LookupError: unknown encoding"),
        ("{% include 'a' %}", "TypeError: no loader"),
        ("{{ '\\ud800' }}", "half a character"),
    ],
)
def test_a_template_that_fails_is_no_harmful_one(source: str, said: str, foreign: bool) -> None:
    """What Python raised beside what was foreseen ended its process, and it was called harmful."""
    with pytest.raises(InvalidRequest, match=f"refuses this conversation: .*{said}"):
        ChatTemplate(source, {}, foreign=foreign).render(ASK)


class TestForeignTemplates:
    """What the sandbox alone does not stop: templates that eat time or memory."""

    def test_render_as_at_home(self) -> None:
        source = "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
        specials = {"bos_token": "<s>"}
        foreign = ChatTemplate(source, specials, foreign=True)
        assert foreign.render(ASK) == ChatTemplate(source, specials).render(ASK)

    @pytest.mark.parametrize("harm", HARMS)
    def test_harm_to_every_conversation_is_found_at_once(
        self, harm: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(template, "RENDER_SECONDS", 1.0)
        with pytest.raises(ModelUnusable, match="chat template is harmful: it (took|needed) more"):
            ChatTemplate(harm, {}, foreign=True)

    def test_harm_to_one_conversation_ends_that_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(template, "RENDER_SECONDS", 1.0)
        source = "{% if messages | length > 1 %}" + HARMS[0] + "{% endif %}fine"
        foreign = ChatTemplate(source, {}, foreign=True)
        with pytest.raises(InvalidRequest, match="was stopped: it took more than 1 seconds"):
            foreign.render(ASK)
        assert foreign.render(ASK[1:]) == "fine"

    def test_a_refusal_of_the_probe_is_no_fault(self) -> None:
        source = "{% if messages | length < 2 %}{{ raise_exception('two') }}{% endif %}ok"
        assert ChatTemplate(source, {}, foreign=True).render(ASK) == "ok"

    def test_only_bundled_models_are_trusted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(template, "RENDER_SECONDS", 1.0)
        (tmp_path / "chat_template.jinja").write_text(HARMS[1])
        with pytest.raises(ModelUnusable, match="chat template is harmful"):
            ChatTemplate.load(tmp_path)
        monkeypatch.setattr(template, "TRUSTED", tmp_path.parent)
        ChatTemplate.load(tmp_path)  # without a trial in the sandbox


def test_a_template_may_ask_for_the_date() -> None:
    assert ChatTemplate("{{ strftime_now('%Y') }}", {}).render(ASK).isdecimal()
