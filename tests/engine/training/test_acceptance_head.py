"""Training of heads: exact labels, the paper's loss, honest figures, and runs that survive a kill."""

import json
from dataclasses import replace
from itertools import islice

import pytest
import torch

from engine.draft_length.acceptance_head import CARD, WEIGHTS, Head, Kind, load_head
from engine.errors import InvalidRequest
from engine.speculation.tree import chain
from engine.training.acceptance_head import (
    WORK,
    Figures,
    Progress,
    fit,
    learn,
    loss_of,
    measure,
    new_head,
    unweighted,
)
from engine.training.draft_labels import KINDS, LabelledDraft, LabelledTokens, Pair, Recipe
from tests.engine.tiny import tiny_target

RECIPE = Recipe(minutes=5, answer_tokens=8, draft_tokens=3, batch=64, epochs=2, together=4, depth=2)
PROMPTS = [tuple((7 * n + i) % 13 for i in range(2 + n % 5)) for n in range(20)]


def pair(draft_seed=0, layers=1):
    shape = {"sharpness": 2.0}
    return Pair(tiny_target(0, **shape), tiny_target(draft_seed, layers=layers, **shape), frozenset({0}))  # fmt: skip


def rows(count=400, width=4, seed=0):
    """Tokens whose acceptance follows from the state."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, width, generator=generator)
    return LabelledTokens(
        states=states.half(),
        evidence=torch.randn(count, 4, generator=generator),
        accepted=torch.sigmoid(2 * states[:, 0]),
        reached=torch.ones(count),
        prompt=torch.arange(count) % 20,
    )


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_the_chances_of_verification_on_every_path(kind):
    """Label and evidence of every drafted token equal those of its path scored alone."""
    both, text, prompt = pair(), (1, 2, 3, 4, 5, 6), 3
    draft = LabelledDraft(both, kind, torch.Generator().manual_seed(5))
    for model in (both.target, both.draft):
        model.crop(0, 0)
        model.feed(0, text[: prompt - 1])
    tokens, parents = list(text[prompt - 1 :]), [-1, 0, 1, 2]
    with torch.inference_mode():
        levels = draft.grow(tokens, parents, RECIPE)
        again = LabelledDraft(both, kind, torch.Generator().manual_seed(5))
        labels = again.labelled(text, prompt, RECIPE, number=7)
    assert len(levels) == RECIPE.draft_tokens
    at = 0
    for level in levels:
        for parent, token in zip(level.parents, level.tokens.tolist(), strict=True):
            path = [parent]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            ids = [*text[: prompt - 1], *(tokens[n] for n in path)]
            p, q = (fresh_law(model, ids) for model in (tiny_target(0, sharpness=2.0), tiny_target(0, layers=1, sharpness=2.0)))  # fmt: skip
            wanted = {
                (True, False): min(1.0, float(p[token] / q[token])),
                (False, False): float(p[token]),
                (False, True): float(int(p.argmax()) == token),
            }[kind.drawn, kind.greedy]
            assert float(labels.accepted[at]) == pytest.approx(wanted, abs=1e-4)
            assert float(labels.evidence[at, 0]) == pytest.approx(float(q[token].log()), abs=1e-3)
            at += 1
    assert at == len(labels.accepted)
    assert set(labels.prompt.tolist()) == {7}


def fresh_law(model, ids):
    return model.score([0], [chain(ids)])[0].logits[-1].softmax(-1)


def test_nothing_is_reached_after_a_rejection_or_the_answers_end():
    both = replace(pair(draft_seed=9, layers=3), stop_tokens=frozenset(range(6)))
    kind = Kind(drawn=True, greedy=False)
    draft = LabelledDraft(both, kind, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        both.draft.feed(0, [1])
        levels = draft.grow([2, 3, 4, 5, 6], [-1, 0, 1, 2, 3], RECIPE)
    both.draft.crop(0, 0)
    labels = LabelledDraft(both, kind, torch.Generator().manual_seed(1)).labelled((1, 2, 3, 4, 5, 6), 2, RECIPE, 0)  # fmt: skip
    count = len(levels[0].parents)
    reached, accepted = (t.reshape(-1, count) for t in (labels.reached, labels.accepted))
    assert torch.equal(reached[0], torch.ones(count))
    for level in range(1, len(levels)):
        continues = torch.tensor([t >= 6 for t in levels[level - 1].tokens.tolist()])
        wanted = reached[level - 1] * accepted[level - 1] * continues
        assert torch.allclose(reached[level], wanted)
    assert float(reached[1].min()) == 0


# --- loss and training ----------------------------------------------------------------------------


def test_the_loss_is_the_weighted_cross_entropy():
    two = replace(rows(2), accepted=torch.tensor([0.25, 1.0]), reached=torch.tensor([1.0, 0.5]))
    head = new_head(4, RECIPE)
    p = head.logits(two.states, two.evidence).softmax(-1).tolist()
    first = 6 * 0.75 * -torch.tensor(p[0][0]).log() + 0.25 * -torch.tensor(p[0][1]).log()
    second = 0.5 * -torch.tensor(p[1][1]).log()
    wanted = (first + second) / (6 * 0.75 + 0.25 + 0.5)
    assert float(loss_of(head, two, 6.0)) == pytest.approx(float(wanted), abs=1e-5)


def finish(steps):
    """What a generator returns, and what it yielded."""
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            return end.value, seen


@pytest.mark.parametrize("weight", [1.0, 6.0])
def test_whatever_the_weight_the_finished_head_states_probabilities(weight):
    same = replace(rows(), states=torch.zeros(400, 4).half(), evidence=torch.zeros(400, 4),
                   accepted=torch.full((400,), 0.3))  # fmt: skip
    recipe = replace(RECIPE, reject_weight=weight, epochs=40, learning_rate=2e-2)
    head, _ = finish(fit(same, recipe))
    assert measure(unweighted(head, weight), same).predicted == pytest.approx(0.3, abs=0.02)


def test_training_finds_what_the_state_tells():
    head, seen = finish(fit(rows(), replace(RECIPE, epochs=20)))
    assert seen[-1].loss < seen[0].loss
    assert seen[-1].seconds_left == 0
    assert measure(head, rows(seed=1)).auc > measure(new_head(4, RECIPE), rows(seed=1)).auc + 0.1


# --- figures --------------------------------------------------------------------------------------


def test_auc_is_the_share_of_pairs_in_the_right_order():
    some = rows(60)
    some = replace(some, reached=torch.rand(60, generator=torch.Generator().manual_seed(3)))
    head = Head(**{n: t * 30 for n, t in new_head(4, RECIPE).tensors().items()})
    p = head.logits(some.states, some.evidence).softmax(-1)[:, 1].double()
    a, w = some.accepted.double(), some.reached.double()
    weight = (w * (1 - a))[:, None] * (w * a)[None, :]
    right = (p[:, None] < p[None, :]).double() + (p[:, None] == p[None, :]).double() / 2
    assert measure(head, some).auc == pytest.approx(float((weight * right).sum() / weight.sum()))


def test_a_blind_head_has_an_auc_of_one_half_and_its_bias_shows():
    blind = Head(**{n: t * 0 for n, t in new_head(4, RECIPE).tensors().items()})
    found = measure(blind, replace(rows(), accepted=torch.full((400,), 0.8)))
    assert (found.predicted, found.observed) == pytest.approx((0.5, 0.8))
    assert found.calibration_error == pytest.approx(0.3)


# --- whole runs -----------------------------------------------------------------------------------


def run(out, prompts=PROMPTS, recipe=RECIPE):
    seen = list(learn(pair(), prompts, recipe, out))
    return seen[:-1], seen[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One uninterrupted run: its folder, progress and figures."""
    out = tmp_path_factory.mktemp("whole") / "head"
    return out, *run(out)


def test_a_run_writes_a_head_that_loads_with_its_figures(whole):
    out, progress, figures = whole
    assert isinstance(figures, Figures)
    assert all(isinstance(now, Progress) for now in progress)
    assert {now.stage for now in progress} == {"answers", "training"}
    head, likeness = load_head(out)
    assert head.width == 32
    assert likeness.draft == (13, 1, 1)
    card = json.loads((out / CARD).read_text())
    assert card["figures"]["auc"] == figures.auc
    assert {file.name for file in out.iterdir()} == {CARD, WEIGHTS}


def test_a_run_killed_anywhere_ends_in_the_same_head(whole, tmp_path):
    folder, progress, figures = whole
    for killed_at in (2, len(progress) - 2):
        out = tmp_path / str(killed_at)
        steps = learn(pair(), PROMPTS, RECIPE, out)
        list(islice(steps, killed_at))
        steps.close()
        assert not (out / WEIGHTS).exists()
        assert run(out)[1] == figures
        assert (out / WEIGHTS).read_bytes() == (folder / WEIGHTS).read_bytes()


def test_too_little_time_is_explained(tmp_path):
    with pytest.raises(InvalidRequest, match="more minutes"):
        run(tmp_path, recipe=replace(RECIPE, minutes=1e-9))


def test_an_unfinished_run_of_another_kind_is_left_alone(tmp_path):
    list(islice(learn(pair(), PROMPTS, RECIPE, tmp_path), 1))
    before = {f.name: f.read_bytes() for f in (tmp_path / WORK).iterdir()}
    with pytest.raises(InvalidRequest, match="unfinished run with other models"):
        run(tmp_path, recipe=replace(RECIPE, seed=3))
    assert {f.name: f.read_bytes() for f in (tmp_path / WORK).iterdir()} == before


@pytest.mark.parametrize(("prompts", "said"), [
    (PROMPTS[:3], "give at least 10 prompts"),
    ([tuple(range(13)) * 7] * 20, "no prompt fits"),
    ([], "nothing was collected"),
])  # fmt: skip
def test_prompts_that_do_not_suffice_are_explained(tmp_path, prompts, said):
    with pytest.raises(InvalidRequest, match=said):
        run(tmp_path, prompts)
