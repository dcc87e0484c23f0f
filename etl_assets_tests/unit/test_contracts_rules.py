"""Rules say in words what they demand, and refuse what could mean two things."""

from __future__ import annotations

from decimal import Decimal

import pytest

from etl_assets.contracts.columns import Column
from etl_assets.contracts.rules import (
    AtLeast,
    AtMost,
    DoesNotContain,
    HexDigits,
    Matches,
    MaxCharacters,
    NotEmpty,
    NotNull,
    OneOf,
    first_violation,
)
from etl_assets.contracts.sql_text import identifier, number_literal, string_literal
from etl_assets.errors import ContractError


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (NotNull(), "amount must not be null"),
        (AtLeast(0), "amount must be at least 0"),
        (AtMost(Decimal("0.10")), "amount must be at most 0.10"),
        (OneOf(("a", "b")), "amount must be one of a, b"),
        (NotEmpty(), "amount must not be empty"),
        (MaxCharacters(3), "amount must be at most 3 characters long"),
        (DoesNotContain("/"), "amount must not contain '/'"),
        (HexDigits(64), "amount must be 64 lower-case hexadecimal digits"),
        (Matches("[A-Z]{3}", "three capital letters"), "amount must be three capital letters"),
    ],
)
def test_a_rule_explains_itself_in_a_sentence(rule, sentence):
    assert rule.explain("amount") == sentence


@pytest.mark.parametrize(
    "pattern", ["[A-Z]{3}", "[^/]+", "(?:a|b)*c?", "v[0-9]{1,2}", "(ab){2,}?", "a-b_c d", "[$.*]"]
)
def test_a_pattern_of_the_common_subset_is_taken(pattern):
    assert Matches(pattern, "right").pattern == pattern


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\d+", "Python takes every script's digits, Java only ASCII's"),
        (r"a\Z", "Java's \\Z stops before a last line feed"),
        ("a.b", "Java's dot stops at more line ends"),
        ("^a", "anchors depend on flags"),
        ("a$", "also matches before a last line feed"),
        ("(?i)a", "case folding differs"),
        ("(?=a)a", "look-around"),
        ("(?P<n>a)", "not Java"),
        ("(?<n>a)", "not Python"),
        ("[a&&b]", "an intersection in Java only"),
        ("[a[bc]]", "a union in Java only"),
        ("[a--b]", "may become a difference in Python"),
        ("[]a]", "an error in Java"),
        ("[]", "an error"),
        ("a++", "possessive"),
        ("a{2}+", "possessive"),
        ("a{,3}", "a literal in Java"),
        ("{3}", "nothing to repeat"),
        ("a**", "multiple repeat"),
        ("(a", "not closed"),
        ("a)", "not opened"),
        ("é", "could be written in two ways"),
        ("a\n", "a control character"),
        ("", "empty"),
    ],
)
def test_a_pattern_that_java_and_python_could_read_differently_is_refused(pattern, why):
    with pytest.raises(ContractError):
        Matches(pattern, why)


@pytest.mark.parametrize("values", [(), ("a", "a")])
def test_one_of_needs_values_each_of_them_once(values):
    with pytest.raises(ContractError):
        OneOf(values)


def test_no_text_is_without_the_empty_text():
    with pytest.raises(ContractError):
        DoesNotContain("")


def test_a_frame_without_rules_has_no_violation():
    assert first_violation([]) == "CAST(NULL AS STRING)"
    assert first_violation([Column("a", "INT", "A.", nullable=True)]) == "CAST(NULL AS STRING)"


def test_the_first_violation_asks_in_the_order_of_the_columns_and_for_null_first():
    sql = first_violation(
        [Column("b", "INT", "B.", rules=(AtLeast(1),)), Column("a", "STRING", "A.", rules=(NotEmpty(),))]
    )
    asked = ["b must not be null", "b must be at least 1", "a must not be null", "a must not be empty"]
    assert sorted(asked, key=sql.index) == asked
    assert sql.startswith("CASE WHEN NOT (`b` IS NOT NULL) THEN 'b must not be null' ")
    assert sql.endswith(" END")


def test_no_character_of_a_text_can_end_its_literal():
    literal = string_literal("a'b\"c\\d${e}\nf")
    assert not set("'\"\\$\n") & set(literal[1:-1].replace("\\u", ""))


def test_names_and_numbers_are_written_so_that_they_mean_nothing_else():
    assert identifier("a`b") == "`a``b`"
    assert number_literal(Decimal("1E+3")) == "1000"
    assert number_literal(Decimal("1E-7")) == "0.0000001"
    assert number_literal(-5) == "-5"
