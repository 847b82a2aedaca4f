"""Names as people paste them, and the files that a quantisation names."""

import pytest

from app.model_names import Pasted, pasted
from app.models.hub.repository import Digest, Kind, RemoteFile, Repository
from app.models.hub.selection import choose_files

REPO = "unsloth/Qwen3-0.6B-GGUF"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (REPO, Pasted(REPO)),
        (f"{REPO}:Q4_K_M", Pasted(REPO, tag="Q4_K_M")),
        (f"{REPO}:latest", Pasted(REPO)),
        (f"{REPO}@v1.0", Pasted(REPO, revision="v1.0")),
        (f"https://huggingface.co/{REPO}", Pasted(REPO)),
        (f"https://huggingface.co/{REPO}/", Pasted(REPO)),
        (f"huggingface.co/{REPO}/tree/main", Pasted(REPO)),
        (f"https://huggingface.co/{REPO}/tree/dev", Pasted(REPO, revision="dev")),
        (f"https://huggingface.co/{REPO}/blob/main/m.gguf", Pasted(REPO, file="m.gguf")),
        (f"https://hf.co/{REPO}/resolve/main/a%20b/m.gguf?download=true", Pasted(REPO, file="a b/m.gguf")),
        (f"hf.co/{REPO}:Q8_0", Pasted(REPO, tag="Q8_0")),
        (f"hf://{REPO}", Pasted(REPO)),
        (f"ollama run hf.co/{REPO}:Q4_0", Pasted(REPO, tag="Q4_0")),
        (f"llama-server -hf {REPO}:Q4_0", Pasted(REPO, tag="Q4_0")),
        (f" '{REPO}' ", Pasted(REPO)),
        (f"http://mirror.local:8/{REPO}", Pasted(REPO)),
        (f"git clone https://huggingface.co/{REPO}.git", Pasted(REPO)),
        (f"$ docker model pull hf.co/{REPO}:Q4_0", Pasted(REPO, tag="Q4_0")),
        (f"hf download {REPO} m-Q8_0.gguf --local-dir .", Pasted(REPO, file="m-Q8_0.gguf")),
        (f"vllm serve {REPO} --port 8000", Pasted(REPO)),
        (f'AutoModel.from_pretrained("{REPO}")', Pasted(REPO)),
        (f"llm = Llama.from_pretrained(repo_id='{REPO}', n_ctx=512)", Pasted(REPO)),
        (f"[Qwen](https://huggingface.co/{REPO}).", Pasted(REPO)),
        (f"see https://huggingface.co/{REPO}, it is small", Pasted(REPO)),
        (f"https://huggingface.co/{REPO}?local-app=vllm#files", Pasted(REPO)),
        (f"https://huggingface.co/api/models/{REPO}", Pasted(REPO)),
        (f"{REPO}/m-Q4_0.gguf", Pasted(REPO, file="m-Q4_0.gguf")),
        (f"{REPO}/sub/m-Q4_0.gguf", Pasted(REPO, file="sub/m-Q4_0.gguf")),
        (f"\u200b{REPO}\n", Pasted(REPO)),
        ("https://huggingface.co/datasets/owner/data", None),
        ("https://huggingface.co/spaces/owner/page", None),
        ("https://huggingface.co/owner", None),
        ("ollama run qwen3:0.6b", None),
        ("either and/or both", None),
        ("qwen coder", None),
        ("qwen3", None),
        ("https://example.com/a/b", None),
        ("a/b:two words", None),
        ("../x", None),
        ("[x", None),
        ("http://[x/a/b", None),
        ("", None),
    ],
)  # fmt: skip
def test_what_is_meant(text, meant):
    assert pasted(text, "http://mirror.local:8") == meant


def repository(*names):
    digest = Digest(Kind.SHA256, "0" * 64)
    return Repository(REPO, "c" * 40, tuple(RemoteFile(name, 5, digest) for name in names))


FILES = (
    "m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf", "m-q8_0.gguf", "sub/m-Q2_K-00001-of-00002.gguf",
    "sub/m-Q2_K-00002-of-00002.gguf", "m-Q4_K_M-imatrix.gguf",
)  # fmt: skip


@pytest.mark.parametrize(
    ("tag", "chosen"),
    [
        ("Q4_K_M", ["m-Q4_K_M.gguf"]),
        ("q4_k_m", ["m-Q4_K_M.gguf"]),
        ("UD-Q4_K_M", ["m-UD-Q4_K_M.gguf"]),
        ("Q8_0", ["m-q8_0.gguf"]),
        ("Q2_K", [*FILES[3:5]]),
        ("imatrix", ["m-Q4_K_M-imatrix.gguf"]),
    ],
)
def test_the_files_of_a_quantisation(tag, chosen):
    found = choose_files(repository(*FILES), (f":{tag}",))
    assert [file.name for file in found] == chosen


@pytest.mark.parametrize("part", FILES[3:5])
def test_the_address_of_one_part_means_all_of_them(part):
    meant = pasted(f"https://huggingface.co/{REPO}/blob/main/{part}")
    found = choose_files(repository(*FILES), meant.wanted)
    assert [file.name for file in found] == [*FILES[3:5]]
