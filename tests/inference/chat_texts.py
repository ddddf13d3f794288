"""Texts for random chats over the tiny models' vocabulary."""

from hypothesis import strategies as st

# Letters that no merge joins, in runs, so that chats share beginnings, leave each other anywhere and cross edges.
texts = st.lists(
    st.tuples(st.sampled_from("bdq"), st.sampled_from([1, 1, 2, 5, 20, 31, 32, 33, 64, 100, 255, 257])),
    min_size=1,
    max_size=3,
).map(lambda runs: "".join(letter * count for letter, count in runs))

systems = st.sampled_from([None, "", "z" * 10, "z" * 70, "z" * 60 + "x" * 10])
which = st.integers(0, 99)
fraction = st.floats(0, 1)
reply_lengths = st.sampled_from([1, 2, 5, 12])
