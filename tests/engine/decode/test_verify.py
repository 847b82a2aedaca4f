"""Laws of verify(): whatever was proposed, what comes out follows the target (exact enumeration)."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from engine.decode.chance import SeededChance
from engine.decode.sampling import probabilities
from engine.decode.tree import DraftTree
from engine.decode.verify import Verdict, residual, verify, without
from engine.errors import NumericalError
from engine.request import SamplingParams
from tests.engine.enumeration import distance, law_of, random_law

SAMPLED = SamplingParams(temperature=1.0)
GREEDY = SamplingParams()
EXACT = 1e-12


def rows(*laws):
    """Logits whose softmax is exactly these laws; impossible tokens are -inf."""
    return torch.stack([law.double().log() for law in laws])


def first_token(tree, verdict):
    return tree.tokens[verdict.path[1]] if len(verdict.path) > 1 else verdict.bonus


def star(tokens, q=None):
    """A root with these children."""
    return DraftTree((0, *tokens), (-1, *(0 for _ in tokens)), q)


def level_law(p, q, width, rule=verify):
    """Law of the first emitted token when ``width`` children are drawn from q without replacement."""

    def run(chance):
        tree = star(chance.draw_distinct(q, width), {0: q})
        logits = rows(p, *(p for _ in range(len(tree) - 1)))
        return first_token(tree, rule(tree, logits, SAMPLED, chance))

    return law_of(run)


def law(*shares):
    return torch.tensor(shares, dtype=torch.float64)


VISIBLE = (law(0.1, 0.5, 0.2, 0.2), law(0.7, 0.05, 0.2, 0.05))
PAIRS = [
    VISIBLE,
    (law(0.1, 0.2, 0.7), law(0.6, 0.3, 0.1)),
    (law(0.25, 0.25, 0.5), law(0.25, 0.25, 0.5)),
    (law(0.5, 0.5, 0.0, 0.0), law(0.0, 0.0, 0.5, 0.5)),
    (law(0.5, 0.25, 0.25), law(0.0, 1.0, 0.0)),
    (law(0.0, 1.0, 0.0), law(0.5, 0.25, 0.25)),
    *((random_law(4, s, s % 2), random_law(4, s + 100, (s + 1) % 3)) for s in range(6)),
]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_children_without_replacement_leave_the_targets_law(p, q, width):
    assert distance(level_law(p, q, width), p) < EXACT


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("candidates", [(0,), (1, 0), (2, 1), (0, 1, 2)])
def test_deterministic_children_leave_the_targets_law(p, q, candidates):
    def run(chance):
        tree = star(candidates)
        return first_token(tree, verify(tree, rows(*[p] * len(tree)), SAMPLED, chance))

    assert distance(law_of(run), p) < EXACT


def test_exhausted_draft_mass_continues_uniformly():
    """A fourth child beyond q's support must be drawn, and is judged, as uniform over the rest."""
    p, q = VISIBLE[0], law(0.5, 0.5, 0.0, 0.0)

    def run(chance):
        drawn = chance.draw_distinct(q, 4)
        while len(drawn) < 4:
            rest = torch.ones(4, dtype=torch.float64)
            rest[drawn] = 0
            drawn.append(chance.draw(rest))
        tree = star(drawn, {0: q})
        verdict = verify(tree, rows(*[p] * 5), SAMPLED, chance)
        assert len(verdict.path) > 1  # the cover property: with all tokens drawn, one is accepted
        return first_token(tree, verdict)

    assert distance(law_of(run), p) < EXACT


class Text:
    """Target and draft laws [V] after every prefix of up to ``depth`` tokens: a random toy language."""

    def __init__(self, seed, depth, size=3, zeros=(0, 0), same=False):
        def laws(first, impossible):
            return {
                prefix: random_law(size, first + 97 * seed + 7 * len(prefix) + number, impossible)
                for number, prefix in enumerate(prefixes(size, depth))
            }

        self.depth = depth
        self.p = laws(0, zeros[0])
        self.q = self.p if same else laws(10_000, zeros[1])

    def draft(self, chance, stop=None):
        """A chain of ``depth`` drawn tokens; it ends early behind the token ``stop``."""
        drafted = []
        while len(drafted) < self.depth and stop not in drafted:
            drafted.append(chance.draw(self.q[tuple(drafted)]))
        return DraftTree(
            (0, *drafted),
            tuple(range(-1, len(drafted))),
            {node: self.q[tuple(drafted[:node])] for node in range(len(drafted))},
        )

    def logits(self, tree):
        """The target's rows for every node of a chain."""
        return rows(*(self.p[tree.tokens[1 : node + 1]] for node in range(len(tree))))

    def share(self, sequence):
        """Probability of a sequence under the target."""
        return math.prod(float(self.p[sequence[:i]][token]) for i, token in enumerate(sequence))

    def emitted(self, rule, chance, stop=None):
        """The first ``depth`` + 1 tokens, continued with the target's own where the round was short."""
        tree = self.draft(chance, stop)
        verdict = rule(tree, self.logits(tree), SAMPLED, chance)
        tokens = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]
        while len(tokens) < self.depth + 1:
            tokens.append(chance.draw(self.p[tuple(tokens)]))
        return tuple(tokens)

    def error(self, rule=verify, stop=None):
        """Largest difference between the joint law of a rule and the target's."""
        found = law_of(lambda chance: self.emitted(rule, chance, stop))
        every = product(range(len(self.p[()])), repeat=self.depth + 1)
        return max(abs(found.get(s, 0.0) - self.share(s)) for s in every)

    def accepted(self, rule):
        """Expected accepted tokens of one round."""
        laws = law_of(lambda c: len(rule(t := self.draft(c), self.logits(t), SAMPLED, c).path) - 1)
        return sum(count * share for count, share in laws.items())


def prefixes(size, depth):
    """All token sequences of up to ``depth`` tokens."""
    return [prefix for length in range(depth + 1) for prefix in product(range(size), repeat=length)]


def disjoint(size, depth):
    """A text whose draft proposes only what the target never says."""
    text = Text(0, depth, size)
    for laws, lack in ((text.p, 0), (text.q, 1)):
        for prefix in laws:
            laws[prefix] = torch.eye(size, dtype=torch.float64)[1 - lack]
    return text


def one_hot_draft(depth):
    """A draft that is certain of one token everywhere."""
    text = Text(3, depth)
    text.q = {prefix: torch.eye(3, dtype=torch.float64)[len(prefix) % 3] for prefix in text.p}
    return text


TEXTS = [
    *(Text(seed, depth) for seed in range(4) for depth in (1, 2, 3)),
    *(Text(seed, 2, size) for seed in range(3) for size in (4, 5)),
    *(Text(seed, 3, zeros=zeros) for seed in range(3) for zeros in ((1, 0), (0, 1), (1, 1))),
    *(Text(5, depth, same=True) for depth in (1, 2, 3)),
    *(disjoint(3, depth) for depth in (1, 2)),
    *(one_hot_draft(depth) for depth in (1, 3)),
]


# Block verification. One level cannot tell a wrong residual from the right one: joint laws can.


@pytest.mark.parametrize("text", TEXTS)
def test_joint_law_of_a_sampled_chain_is_the_targets(text):
    assert text.error() < EXACT


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stop", [0, 1, 2])
def test_a_chain_may_end_behind_a_token_that_it_drew(seed, stop):
    """Adaptive lengths: whether the draft goes on is decided by what was drafted, and nothing else."""
    assert Text(seed, 3).error(stop=stop) < EXACT


def token_wise(tree, logits, sampling, chance):
    """Leviathan's rule, position by position: what block verification is compared with."""
    for node in range(tree.drafted):
        p, q, token = probabilities(logits[node], sampling), tree.q[node], tree.tokens[node + 1]
        if not chance.accept(float(p[token]), float(q[token])):
            return Verdict(tuple(range(node + 1)), chance.draw(residual(p, q)))
    return Verdict(tuple(range(len(tree))), chance.draw(probabilities(logits[-1], sampling)))


def test_the_comparison_is_exact_too():
    assert Text(1, 3).error(token_wise) < EXACT


@pytest.mark.parametrize("text", TEXTS)
def test_a_block_never_accepts_less_than_token_by_token(text):
    assert text.accepted(verify) >= text.accepted(token_wise) - EXACT


@pytest.mark.parametrize(("depth", "gain"), [(1, 1.0), (2, 1.02), (3, 1.03)])
def test_a_block_of_several_tokens_accepts_more(depth, gain):
    """Published: some 4 % more at two tokens and 5 % at three on random laws; equal at one."""
    texts = [Text(seed, depth) for seed in range(20)]
    ratio = sum(t.accepted(verify) for t in texts) / sum(t.accepted(token_wise) for t in texts)
    assert ratio == pytest.approx(1.0) if depth == 1 else ratio > gain


def test_the_same_draft_and_target_accept_everything():
    text = Text(5, 3, same=True)
    assert text.accepted(verify) == pytest.approx(3)


def plain_residual(tree, logits, sampling, chance):
    """Block verification that draws the next token from max(p - q, 0), without the pi."""
    verdict = verify(tree, logits, sampling, SplitChance(chance))
    last = verdict.path[-1]
    if last == tree.drafted:
        return Verdict(verdict.path, chance.draw(probabilities(logits[last], sampling)))
    p = probabilities(logits[last], sampling)
    return Verdict(verdict.path, chance.draw(residual(p, tree.q[last])))


class SplitChance:
    """Accepts as the wrapped chance does, and leaves drawing to the caller."""

    def __init__(self, chance):
        self.accept = chance.accept

    def draw(self, law):
        return 0


def test_negative_control_block_with_the_plain_residual():
    assert max(Text(seed, 1).error(plain_residual) for seed in range(5)) < EXACT  # it cannot show
    assert max(Text(seed, 2).error(plain_residual) for seed in range(5)) > 1e-3


# Several levels of drawn children, and children drawn with replacement.


def grown(text, widths, chance, replaced=False):
    """A tree whose nodes at level i have ``widths[i]`` drawn children, in level order."""
    tokens, parents, paths, q = [0], [-1], [()], {}
    for node, path in enumerate(paths):  # grows while it is walked: level order
        if len(path) == len(widths):
            break
        q[node], width = text.q[path], widths[len(path)]
        if replaced:
            drawn = [chance.draw(q[node]) for _ in range(width)]
        else:
            drawn = chance.draw_distinct(q[node], width)
        tokens += drawn
        parents += [node] * len(drawn)
        paths += [(*path, token) for token in drawn]
    tree = DraftTree(tuple(tokens), tuple(parents), q, replaced=replaced)
    return tree, rows(*(text.p[path] for path in paths))


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("widths", [(2,), (3,), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("zeros", [(0, 0), (1, 0), (0, 1)])
def test_joint_law_of_a_sampled_tree_is_the_targets(widths, replaced, zeros):
    text = Text(2, len(widths), zeros=zeros)

    def run(chance):
        tree, logits = grown(text, widths, chance, replaced)
        verdict = verify(tree, logits, SAMPLED, chance)
        tokens = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]
        while len(tokens) < len(widths) + 1:
            tokens.append(chance.draw(text.p[tuple(tokens)]))
        return tuple(tokens)

    found = law_of(run)
    for sequence in product(range(3), repeat=len(widths) + 1):
        assert found.get(sequence, 0.0) == pytest.approx(text.share(sequence), abs=EXACT)


def drawn_twice(p, q, chance, once):
    """First token of a node with two draws from q with replacement; ``once`` merges equal ones."""
    drawn = [chance.draw(q), chance.draw(q)]
    tree = replace(star(dict.fromkeys(drawn) if once else drawn, {0: q}), replaced=True)
    return first_token(tree, verify(tree, rows(*[p] * len(tree)), SAMPLED, chance))


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_a_token_that_was_drawn_twice_is_tried_twice(p, q):
    assert distance(law_of(lambda chance: drawn_twice(p, q, chance, False)), p) < EXACT


def test_negative_control_merged_duplicates():
    """One attempt in place of two, without counting them."""
    p, q = VISIBLE
    assert distance(law_of(lambda chance: drawn_twice(p, q, chance, True)), p) > 1e-3


# Negative controls: rules from the literature's bugs, which these laws must reject.


def keeps_sibling_in_q(tree, logits, sampling, chance):
    """A rejected sibling stays in the proposal."""
    rest, offer = probabilities(logits[0], sampling), tree.q[0]
    for child in tree.children[0]:
        token = tree.tokens[child]
        if chance.accept(float(rest[token]), float(offer[token])):
            return Verdict((0, child), 0)
        rest = residual(rest, offer)
    return Verdict((0,), chance.draw(rest))


def tries_with_replacement(tree, logits, sampling, chance):
    """Draws without replacement are judged as if they had been replaced."""
    return verify(replace(tree, replaced=True), logits, sampling, chance)


def draws_bonus_from_p(tree, logits, sampling, chance):
    """After rejection the target's law is used instead of the residual."""
    wanted = probabilities(logits[0], sampling)
    child = tree.children[0][0]
    if chance.accept(float(wanted[tree.tokens[child]]), float(tree.q[0][tree.tokens[child]])):
        return Verdict((0, child), 0)
    return Verdict((0,), chance.draw(wanted))


def drops_unlikely_drafts(tree, logits, sampling, chance):
    """A sampled candidate is thrown away because its own draft probability is small."""
    likely = [c for c in tree.children[0] if float(tree.q[0][tree.tokens[c]]) >= 0.2]
    if not likely:
        return Verdict((0,), chance.draw(probabilities(logits[0], sampling)))
    return verify(tree, logits, sampling, chance)


def sorts_siblings(tree, logits, sampling, chance):
    """Draws without replacement are judged in order of probability, not in draw order."""
    tokens = sorted(tree.tokens[1:], key=lambda t: -float(tree.q[0][t]))
    return verify(star(tokens, tree.q), logits, sampling, chance)


def judges_top_k_by_ratio(tree, logits, sampling, chance):
    """Deterministic candidates are judged as if they had been drawn."""
    best = tree.q[0].topk(len(tree) - 1).indices.tolist()
    return verify(star(best, tree.q), logits, sampling, chance)


@pytest.mark.parametrize(
    ("rule", "width"),
    [
        (keeps_sibling_in_q, 2),
        (tries_with_replacement, 2),
        (draws_bonus_from_p, 1),
        (drops_unlikely_drafts, 1),
        (judges_top_k_by_ratio, 2),
    ],
)
def test_negative_controls_are_caught(rule, width):
    p, q = VISIBLE

    def run(chance):
        tree = star(chance.draw_distinct(q, width), {0: q})
        verdict = rule(tree, rows(*[p] * len(tree)), SAMPLED, chance)
        if len(verdict.path) == 1:
            return verdict.bonus
        best = q.topk(len(tree) - 1).indices.tolist()
        shown = star(best) if rule is judges_top_k_by_ratio else tree
        return first_token(shown, verdict)

    assert distance(law_of(run), p) > 1e-3


def test_negative_control_sorted_siblings():
    p, q = VISIBLE

    def run(chance):
        tree = star(sorted(chance.draw_distinct(q, 2), key=lambda t: -float(q[t])), {0: q})
        return first_token(tree, verify(tree, rows(*[p] * 3), SAMPLED, chance))

    assert distance(law_of(run), p) > 1e-3


def test_sibling_left_in_q_gives_the_known_wrong_law():
    p, q = VISIBLE
    wrong = level_law(p, q, 2, keeps_sibling_in_q)
    assert [round(wrong[t], 3) for t in range(4)] == [0.1, 0.461, 0.2, 0.239]


# Greedy is the one-hot case.


@pytest.mark.parametrize("seed", range(20))
def test_greedy_is_the_one_hot_case_of_the_general_rule(seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 5, (12,), generator=generator).tolist()
    parents = [-1] + [int(torch.randint(0, n, (), generator=generator)) for n in range(1, 12)]
    taken, kept = set(), []
    for node, parent in enumerate(parents):  # siblings are distinct
        if (parent, tokens[node]) not in taken and (parent == -1 or parent in kept):
            taken.add((parent, tokens[node]))
            kept.append(node)
    place = {node: i for i, node in enumerate(kept)}
    tree = DraftTree(tuple(tokens[n] for n in kept), tuple(place.get(parents[n], -1) for n in kept))
    logits = torch.randn(len(tree), 5, generator=generator, dtype=torch.float64)
    greedy = verify(tree, logits, GREEDY, chance=None)
    one_hot = probabilities(logits, GREEDY).log()
    laws = law_of(lambda chance: verify(tree, one_hot, SAMPLED, chance))
    assert laws == {greedy: 1.0}


def test_greedy_judges_sampled_proposals_by_the_largest_logit():
    q = torch.tensor([0.2, 0.3, 0.5])
    tree = star([2, 1], {0: q})
    logits = torch.tensor([[0.0, 3.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    assert verify(tree, logits, GREEDY, chance=None) == Verdict((0, 2), 2)


def test_tree_of_one_node_is_plain_decoding():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    assert verify(DraftTree((5,), (-1,)), logits, GREEDY, chance=None) == Verdict((0,), 1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_logits_that_are_not_finite_are_refused(bad, sampling):
    logits = torch.tensor([[0.0, bad, 1.0]])
    with pytest.raises(NumericalError, match="not finite"):
        verify(DraftTree((5,), (-1,)), logits, sampling, chance=None)


def test_residual_and_without_keep_to_their_definitions():
    p, q = VISIBLE
    assert torch.allclose(residual(p, q), torch.tensor([0, 0.75, 0, 0.25]).double())
    assert torch.equal(residual(p, p), p)
    assert torch.allclose(without(q, [0]), torch.tensor([0, 1 / 6, 2 / 3, 1 / 6]).double())
    assert torch.allclose(without(torch.tensor([1.0, 0, 0]), [0]), torch.tensor([0, 0.5, 0.5]))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, SamplingParams(0.7, top_k=3)])
def test_rows_of_numpy_are_judged_like_rows_of_torch(sampling):
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(6))
    tree = DraftTree((0, 1, 2, int(logits[0].argmax())), (-1, 0, 1, 0))
    found = [
        verify(tree, given, sampling, SeededChance(seed))
        for seed in range(9)
        for given in (logits, logits.numpy())
    ]
    assert found[::2] == found[1::2]
    bad = logits.clone()
    bad[0, 2] = float("nan")
    with pytest.raises(NumericalError):
        verify(tree, bad.numpy(), sampling, SeededChance(1))
