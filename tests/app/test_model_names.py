"""Models by the names that people and programs write."""

import pytest

from app.model_names import close_names, did_you_mean, is_named, meant

QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
SMOL = "smollm2-135m-instruct-q4_1"


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("pocket", "Pocket"),
        ("pocket", "pocket.gguf"),
        ("pocket", "pocket:latest"),
        ("pocket", "openai/pocket"),
        (QWEN, "qwen2.5-coder-0.5b-instruct-q4_k_m"),
        (QWEN, "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.GGUF"),
        (QWEN, "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"),
        (QWEN, "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"),
        (QWEN, "hf.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"),
        (QWEN, "https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF"),
        (QWEN, f"https://huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/resolve/main/{QWEN}?download=true"),
        (QWEN, rf"C:\models\{QWEN}"),
        (QWEN, "qwen2.5-coder:0.5b-instruct-q4_K_M"),
        (SMOL, "smollm2 135m instruct"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m-instruct"),
        (QWEN, "https://mirror.local/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF/tree/main"),
        (QWEN, f"https://mirror.local/Qwen/any/blob/main/sub%20folder/{QWEN}"),
        (QWEN, "ollama run hf.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"),
        (QWEN, "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@v1.0"),
        ("Qwen3-0.6B-UD-Q4_K_XL.gguf", "unsloth/Qwen3-0.6B-GGUF:UD-Q4_K_XL"),
    ],
)  # fmt: skip
def test_one_model_has_many_names(name: str, asked: str) -> None:
    assert is_named(name, asked)
    assert is_named(asked, name)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("pocket", "pocket-draft"),
        ("pocket", "gpt-4o"),
        ("pocket", ""),
        ("pocket", "[pocket"),
        ("pocket", "http://[pocket/a/b"),
        ("", ""),
        (QWEN, "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q8_0"),
        (QWEN, "qwen2.5-coder-1.5b-instruct-q4_k_m"),
        (SMOL, "smollm2-360m-instruct"),
    ],
)
def test_other_models_have_other_names(name: str, asked: str) -> None:
    assert not is_named(name, asked)


def test_a_repository_may_have_another_name() -> None:
    assert is_named("m-Q4_K_M", "org/other-GGUF", "org/other-GGUF")
    assert is_named("m-Q4_K_M", "org/other-GGUF:Q4_K_M", "org/other-GGUF")
    assert not is_named("m-Q4_K_M", "org/other-GGUF:Q8_0", "org/other-GGUF")


def test_one_of_several_is_meant_where_that_is_clear() -> None:
    known = [SMOL, "smollm2-135m-instruct", QWEN]
    assert meant("SmolLM2-135M-Instruct", known) == "smollm2-135m-instruct"
    assert meant("SmolLM2-135M-Instruct:Q4_1", known) == SMOL
    assert meant("qwen2.5-coder-0.5b-instruct", known) == QWEN
    assert meant("smollm2-135m-instruct", [SMOL, "smollm2-135m-instruct-q8_0"]) is None
    assert meant("gpt-4o", known) is None


def test_close_names_are_proposed() -> None:
    known = ["pocket", QWEN, SMOL]
    assert close_names("poket", known) == ["pocket"]
    assert close_names("smolm2", known) == [SMOL]
    assert close_names("qwen2.5-coder:7b", known) == [QWEN]
    assert did_you_mean("coder", known) == f"; did you mean {QWEN!r}?"
    assert did_you_mean("gpt-4o", known) == ""
