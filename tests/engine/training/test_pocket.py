"""The recipe end to end in miniature: it trains, resumes, and what it exports loads and agrees."""

import json
from itertools import islice

import pytest
import torch
import transformers
from torch import Generator

from engine.decoder.decoder import Architecture
from engine.models.own.target import load_target
from engine.speculation.tree import chain
from engine.training.corpus import Corpus, Mixture
from engine.training.network import PLAIN_ATTENTION_LIMIT, TrainableDecoder, attend_causal
from engine.training.pocket import ROPE_THETA, export
from engine.training.tokenizer import END, SPECIALS, token_id, train_tokenizer
from engine.training.trainer import Recipe, dropout_rate, enabled_exits, exit_weights, train

ARCH = Architecture(32, 3, 4, 2, 8, 48, 400, 128, 1e-5)


@pytest.fixture(scope="module")
def corpus(problems, passages):
    tokenizer = train_tokenizer([p.question + p.answer for p in problems] * 3 + ["def f(x):"], 400)
    return Corpus(tokenizer, problems, passages, seed=1), tokenizer


def decoder():
    return TrainableDecoder(ARCH, ROPE_THETA, Generator().manual_seed(1))


def run(corpus, folder, steps, teacher=None):
    model = decoder()
    batches = lambda share, step: corpus.rows(Mixture(), 4, 32)  # noqa: E731
    recipe = Recipe(minutes=60, warmup_steps=5)
    return model, list(islice(train(model, batches, recipe, folder, teacher), steps))


def test_training_lowers_the_loss(corpus, tmp_path):
    _, progress = run(corpus[0], tmp_path, 60)
    assert progress[-1].loss < progress[0].loss - 0.5


def test_an_interrupted_run_resumes_from_its_checkpoint(corpus, tmp_path):
    model = decoder()
    recipe = Recipe(minutes=0.02, warmup_steps=2)
    batches = lambda share, step: corpus[0].rows(Mixture(), 2, 64)  # noqa: E731
    first = list(train(model, batches, recipe, tmp_path))
    state = json.loads((tmp_path / "checkpoint.json").read_text())
    assert state["step"] == first[-1].step
    again = decoder()
    recipe = Recipe(minutes=0.04, warmup_steps=2)
    second = next(iter(train(again, batches, recipe, tmp_path)))
    assert second.step == first[-1].step + 1


def test_a_student_follows_its_teacher(corpus, tmp_path):
    wanted = torch.randn(400, generator=Generator().manual_seed(5)) * 2

    def teacher(tokens):
        return wanted.expand(*tokens.shape, 400)

    model, _ = run(corpus[0], tmp_path, 80, teacher)
    hidden = model.hidden(torch.tensor([[3, 4, 5]]), [], [None] * 3)[-1]
    assert int(model.logits(hidden)[0, -1].argmax()) == int(wanted.argmax())


def test_the_export_loads_and_equals_the_trained_network(corpus, tmp_path):
    model = decoder()
    with torch.no_grad():
        for parameter in model.parameters():  # what bfloat16 can hold, so that nothing rounds
            parameter.copy_(parameter.to(torch.bfloat16).float())
    export(model, corpus[1], tmp_path)
    ids = [7, 8, 9, 10, 11]
    trained = model.logits(model.hidden(torch.tensor([ids]), [], [None] * 3)[-1])[0]
    ours = load_target(tmp_path, "float32", "cpu").score([0], [chain(ids)])[0].logits
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        reference = theirs(torch.tensor([ids])).logits[0]
    assert (ours - trained).abs().max() < 1e-4
    assert (ours - reference).abs().max() < 1e-4


def test_the_exported_tokenizer_is_transformers_own(corpus, tmp_path):
    export(decoder(), corpus[1], tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "Tom has 12 apples.\n\tHow many? - naïve ☃"
    assert loaded.decode(loaded(text).input_ids) == text
    chat = loaded.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False
    )
    assert chat == "<|bos|><|user|>hi<|end|><|assistant|>"
    assert loaded.eos_token == END


def test_digits_stay_single_and_specials_come_first(corpus):
    tokenizer = corpus[1]
    assert [token_id(tokenizer, s) for s in SPECIALS] == list(range(6))
    assert len(tokenizer.encode("12345").ids) == 5
    with pytest.raises(ValueError, match="no token"):
        token_id(tokenizer, "<|nothing|>")


def test_only_answers_carry_weight(corpus):
    sample = corpus[0].conversation([("What is 1 + 1?", "2"), ("and 2 + 2?", "4")])
    weighed = [i for i, w in zip(sample.ids, sample.weights, strict=True) if w]
    end = token_id(corpus[1], END)
    assert weighed == [*corpus[1].encode("2").ids, end, *corpus[1].encode("4").ids, end]


def test_rows_are_full_and_repeatable(corpus, problems, passages):
    make = lambda: Corpus(corpus[1], problems, passages, seed=9)  # noqa: E731
    first, second = make().rows(Mixture(), 3, 100), make().rows(Mixture(), 3, 100)
    assert first.tokens.shape == first.weights.shape == (3, 100)
    assert torch.equal(first.tokens, second.tokens)


def test_both_attention_paths_agree():
    generator = Generator().manual_seed(1)
    q = torch.randn(1, PLAIN_ATTENTION_LIMIT + 8, 4, 8, generator=generator)
    k, v = (torch.randn(1, PLAIN_ATTENTION_LIMIT + 8, 2, 8, generator=generator) for _ in range(2))
    short = PLAIN_ATTENTION_LIMIT
    long_path = attend_causal(q, k, v)[:, :short]
    plain_path = attend_causal(q[:, :short], k[:, :short], v[:, :short])
    assert (long_path - plain_path).abs().max() < 1e-5


# The LayerSkip recipe: curves, rotation and weights as the paper states them.


@pytest.mark.parametrize("every", [1, 3, 7])
def test_every_exit_gets_its_turn_and_the_last_layer_is_not_an_exit(every):
    seen = [e for step in range(every) for e in enabled_exits(step, 8, every)]
    assert sorted(seen) == list(range(1, 8))


def test_weights_sum_to_one_and_deeper_exits_weigh_more():
    weights = exit_weights([2, 5], 8, 1.0)
    assert sum(weights.values()) == pytest.approx(1)
    assert weights[2] < weights[5] < weights[8]
    assert exit_weights([], 8, 1.0) == {8: 1.0}


def test_dropout_grows_with_the_layer_and_with_training():
    rates = [dropout_rate(layer, 8, 1.0, 0.2) for layer in range(8)]
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0.2)
    assert rates == sorted(rates)
    assert dropout_rate(7, 8, 0.0, 0.2) == 0
    assert dropout_rate(7, 8, 0.5, 0.2) < rates[-1]
