from hypothesis import given
from hypothesis import strategies as st

from inference.kvcache.reuse import ReuseRule, common_prefix_length, token_array

IDS = st.lists(st.integers(0, 3), max_size=30)


@given(IDS, IDS)
def test_the_common_prefix_is_what_a_plain_loop_finds(first: list[int], second: list[int]) -> None:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    assert common_prefix_length(token_array(first), token_array(second)) == length


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_full_attention_uses_any_prefix(common: int, held: int, limit: int) -> None:
    rule = ReuseRule()
    usable = rule.usable_tokens(num_common=common, num_held=held, pos_min=0, max_hit_length=limit)
    assert usable == min(common, held, limit)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_recurrent_state_is_used_whole_or_not_at_all(common: int, held: int, limit: int) -> None:
    rule = ReuseRule(recurrent=True)
    usable = rule.usable_tokens(num_common=min(common, held), num_held=held, pos_min=0, max_hit_length=limit)
    assert usable in (0, held)
    assert (usable > 0) == (common >= held and limit >= held and held > 0)


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 64), st.integers(0, 64))
def test_a_sliding_window_is_used_only_where_every_position_it_reaches_back_to_is_held(
    common: int, held: int, n_swa: int, slack: int
) -> None:
    pos_min = max(0, held - n_swa - slack)
    rule = ReuseRule(n_swa=n_swa)
    usable = rule.usable_tokens(num_common=common, num_held=held, pos_min=pos_min, max_hit_length=10**6)
    if usable:
        # The token decoded at `usable` attends to positions usable - n_swa + 1 and later.
        assert all(position >= pos_min for position in range(max(0, usable - n_swa + 1), usable))
    else:
        assert min(common, held) == 0 or pos_min > max(0, min(common, held) - n_swa + 1)
