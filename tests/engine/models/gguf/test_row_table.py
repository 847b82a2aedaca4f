"""Advice on the type of a GGUF file: of equal quality, clearly faster, and measured."""

from statistics import geometric_mean

from hypothesis import given
from hypothesis import strategies as st

from engine.models.gguf.file_types import FILE_TYPES, WIDTHS, WORTHWHILE, RowTable

kinds = st.sampled_from(list(FILE_TYPES))
seconds = st.tuples(*[st.floats(1e-4, 10) for _ in WIDTHS])
tables = st.dictionaries(kinds, seconds).map(RowTable)

AMX = RowTable({
    "q4_k_m": (0.010, 0.015, 0.029), "q4_0": (0.005, 0.008, 0.010), "q4_1": (0.009, 0.016, 0.03),
    "iq4_nl": (0.007, 0.010, 0.014), "q8_0": (0.0074, 0.009, 0.013), "q6_k": (0.012, 0.02, 0.04),
    "q5_k_m": (0.011, 0.018, 0.037), "q5_0": (0.008, 0.012, 0.017),
    "bf16": (0.03, 0.03, 0.03), "f16": (0.01, 0.02, 0.029),
})  # fmt: skip


@given(tables, kinds, st.none() | st.sets(kinds))
def test_what_is_advised_is_measured_of_equal_quality_and_slower_at_no_width(table, kind, among):
    better = table.faster(kind, among)
    assert bool(table.advice(kind, among)) == (better is not None)
    if better is not None:
        assert {kind, better} <= set(table.seconds)
        assert FILE_TYPES[better].quality == FILE_TYPES[kind].quality
        assert among is None or better in among
        assert max(table.shares(better, kind)) <= 1
        assert geometric_mean(table.shares(better, kind)) <= WORTHWHILE


@given(tables, kinds)
def test_nothing_of_equal_quality_is_clearly_faster_than_the_advised_type(table, kind):
    better = table.faster(kind)
    if better is not None:
        assert table.faster(better) is None


def test_the_sentence_has_both_gains_and_what_they_cost():
    assert AMX.advice("q4_k_m") == (
        "Q4_0 is 2.0x as fast as Q4_K_M here, 2.9x with 16 rows in a pass; answers are slightly less exact"
    )
    assert AMX.advice("q4_k_m", {"q4_1", "iq4_nl", "q8_0"}).startswith("IQ4_NL is 1.4x as fast")
    assert AMX.advice("q4_1").endswith("answers are slightly less exact")
    assert AMX.advice("q6_k").startswith("Q5_0 is 1.5x as fast as Q6_K here, 2.4x")
    assert "exact" not in AMX.advice("bf16")


def test_a_more_exact_type_is_said_to_be_so():
    table = RowTable({"q4_0": (2.0, 2.0, 2.0), "q4_k_s": (1.0, 1.0, 1.0)})
    assert table.advice("q4_0").endswith("answers are slightly more exact")


def test_nothing_is_advised_without_a_measurement_or_a_clear_gain():
    assert (
        AMX.advice("q4_0") == AMX.advice("q8_0") == AMX.advice("iq4_xs") == AMX.advice(None) == ""
    )
    assert AMX.advice("q4_k_m", {"q4_1"}) == "", "fewer rows are faster, more are not"
    assert RowTable({}).advice("q4_k_m") == ""
