"""Contexts and counts that tests of dynamic exits start from."""

from engine.lengths.shadow_tokens import BINS, Counts
from engine.protocols import Context
from engine.request import SamplingParams

GREEDY = SamplingParams()


def context(request=1, ids=(1,), sampling=GREEDY, chance=None):
    return Context(request, 0, list(ids), sampling, chance)


def counts(*exits):
    """Counts of exits from lists of (confidence, matched)."""
    found = Counts.empty(len(exits)).table
    for exit_layer, tokens in enumerate(exits):
        for confidence, matched in tokens:
            missed = int(not matched)
            place = min(int(confidence * BINS), BINS - 1)
            found[exit_layer, missed * BINS + place] += 1
            found[exit_layer, 2 * BINS + missed] += confidence
    return Counts(found)
