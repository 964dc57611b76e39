import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scene_data.usd_paths import clean_identifier, is_identifier, join_path, unique_identifiers

USD_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
NAMES = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(["", "a", "a-b", "a_b", "a_b_1", "a b", "1", "_1"])))


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("torso", "torso"),
        ("left/foot", "left_foot"),
        ("left-foot", "left_foot"),
        ("left foot", "left_foot"),
        ("3rd_link", "_3rd_link"),
        ("Bärenfuß", "Barenfu_"),
        ("été", "ete"),
        ("脚", "_"),
        ("", ""),
        ("²", "_2"),
    ],
)
def test_names_become_identifiers(name, identifier):
    assert clean_identifier(name) == identifier
    assert is_identifier(identifier) or identifier == ""


def test_a_trailing_newline_is_no_identifier():
    assert not is_identifier("a\n")


def test_names_that_become_equal_get_suffixes():
    assert unique_identifiers(["a-b", "a b", "a/b"], "body") == ("a_b", "a_b_1", "a_b_2")


def test_a_valid_name_keeps_itself_whatever_comes_before_it():
    # "a-b" would like to be "a_b", then "a_b_1": both belong to others.
    assert unique_identifiers(["a-b", "a_b", "a_b_1"], "body") == ("a_b_2", "a_b", "a_b_1")


def test_bodies_without_a_name_are_numbered():
    assert unique_identifiers(["world", "", ""], "body") == ("world", "body_1", "body_2")
    assert unique_identifiers(["world", "", "body_1"], "body") == ("world", "body_1_1", "body_1")


def test_siblings_named_before_are_left_alone():
    assert unique_identifiers(["cloth", "cloth"], "flex", taken=["cloth", "cloth_1"]) == ("cloth_2", "cloth_3")


def test_many_equal_names_take_no_time():
    names = unique_identifiers(["x-"] * 20_000, "body")
    assert names[-1] == "x__19999"


@given(NAMES, st.sets(st.text(string.ascii_letters, min_size=1, max_size=3)))
def test_always_valid_unique_and_the_same(names, taken):
    result = unique_identifiers(names, "body", taken)
    assert len(result) == len(names)
    assert all(USD_IDENTIFIER.match(identifier) for identifier in result)
    assert len(set(result) | taken) == len(names) + len(taken)
    assert result == unique_identifiers(list(names), "body", set(taken))


@given(NAMES)
def test_valid_and_unrepeated_names_keep_themselves(names):
    result = unique_identifiers(names, "body")
    for name, identifier in zip(names, result, strict=True):
        if USD_IDENTIFIER.match(name) and names.count(name) == 1:
            assert identifier == name


def test_paths_are_joined_with_single_slashes():
    assert join_path("/World/envs/env_0/", "torso") == "/World/envs/env_0/torso"
    assert join_path("", "torso/foot") == "/torso/foot"
