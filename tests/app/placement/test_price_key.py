"""The key of a model's prices: the same for the same files, machine and settings, and only then."""

import os
from dataclasses import replace

from app.placement.machine import price_key
from engine.request import Calibration, ModelSpec
from tests.engine.models.gguf.tiny import write


def test_the_key_changes_with_files_and_settings_alone(tmp_path):
    file = write(tmp_path / "m.gguf")
    spec = ModelSpec("m", str(file), backend="llama_cpp")
    key = price_key(spec)
    assert price_key(replace(spec, calibration=Calibration((), 0.0, 0.0, 1))) == key
    settings = ({"exact": True}, {"threads": 3}, {"kv_type": "q8_0"}, {"context": 99}, {"slots": 1})
    keys = {price_key(replace(spec, **changed)) for changed in settings}
    os.utime(file, ns=(1, 1))
    keys.add(price_key(spec))
    file.write_bytes(file.read_bytes() + b"\0")
    os.utime(file, ns=(1, 1))
    keys.add(price_key(spec))
    assert len({key, *keys}) == 1 + len(settings) + 2


def test_a_folder_is_known_by_its_weights(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    spec = ModelSpec("m", str(tmp_path))
    key = price_key(spec)
    (tmp_path / "README.md").write_text("more words")
    assert price_key(spec) == key
    (tmp_path / "model.safetensors").write_bytes(b"others")
    assert price_key(spec) != key


def test_the_key_changes_when_a_library_is_compiled_again(tmp_path, monkeypatch):
    spec = ModelSpec("m", str(tmp_path / "m.gguf"))
    (tmp_path / "m.gguf").write_bytes(b"x")
    installed = tmp_path / "llama_cpp_python-0.3.36.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: llama-cpp-python\nVersion: 0.3.36\n")
    monkeypatch.syspath_prepend(tmp_path)
    keys = set()
    for digest in ("one", "other"):
        (installed / "RECORD").write_text(f"llama_cpp/lib/libggml-cpu.so,sha256={digest},1\n")
        keys.add(price_key(spec))
    assert len(keys) == 2
