"""Every constant of what drafters share, in one place."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of ``engine.drafting``; each with its unit and its reason.

    A memory is the weight of the past for each new observation.
    """

    # The draft model's cache.
    prompt_chunk: int = 256  # tokens of a prompt that are fed at once
    least_reading: int = 32  # tokens read at once, below which the time of one cannot be measured
    reading_memory: float = 0.8  # per reading

    # N-gram matches.
    longest_match: int = 24  # tokens; longer matches are not distinguished
    match_memory: float = 0.99  # per evaluated token
    match_guess_weight: float = 4.0  # evaluated tokens that the first guess counts for
    max_confidence: float = 0.995  # below 1, so that probabilities fall strictly along a path
    grams: tuple[int, ...] = (8, 3, 1)  # lengths of suffixes that are looked up, longest first
    newest: int = 4  # places that are kept of each suffix; 8 were no better and took longer

    # Acceptance by rank, and by what the draft says of a token.
    ranks: int = 32  # ranks that are distinguished: the most children of one node
    edges: tuple[float, ...] = (
        0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995,
    )  # of probabilities under the draft that are measured together  # fmt: skip
    middles: tuple[float, ...] = (
        0.01, 0.035, 0.075, 0.15, 0.27, 0.42, 0.57, 0.72, 0.85, 0.93, 0.965, 0.99, 1.0,
    )  # one for each interval between the edges  # fmt: skip
    model_ranks: int = 3  # ranks of the acceptance model: first, second, later children
    model_guess: tuple[float, float] = (0.3, 0.6)  # acceptance at probability 0, and its slope
    model_guess_weight: float = 4.0  # nodes that this guess counts for
    model_memory: float = 0.997  # per measured node
    least_judged: float = 1e-3  # chance of being judged below which a child says nothing
    measured_draws: int = (
        8  # least draws of a node: what is measured must not depend on its children
    )


TUNING = Tuning()
