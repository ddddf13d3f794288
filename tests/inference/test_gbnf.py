"""What is said of a grammar before the native library sees it."""

from __future__ import annotations

import pytest

from inference.gbnf import InvalidGrammar, check_gbnf


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "yes" | "no"',
        'root ::= ""',
        '# what may be said\nroot ::=\n  answer+ # more\n\nanswer ::= "a" |\n  "b"\r\n',
        'root ::= (\n  "a"\n  | [^b-z\\]] )* .',
        'root ::= "\\x41\\u00e4\\U0001F600\\t\\"" [\\-\\[\\]]',
        'root ::= item{2,3} ("x"?)* item{0}\nitem ::= "(" root? ")"',
    ],
)
def test_a_grammar_that_llama_cpp_can_follow_passes(grammar: str) -> None:
    check_gbnf(grammar)


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ("", "no rule named root"),
        ('answer ::= "a"', "no rule named root"),
        ("root ::= answer", "the rule answer is used in root"),
        ('root ::= ("a" | (b))', "the rule b is used in root"),
        ('root = "a"', "line 1"),
        ('root ::= "a"\nx', "line 2 of the grammar: ::= is missing after 'x'"),
        ('root ::= "a"\nroot ::= "b"', "line 2 of the grammar: the rule root is defined twice"),
        ('root ::= "a"\n | "b"', "line 2 of the grammar: a rule must begin with its name"),
        ('root ::= "a', '" is not closed'),
        ("root ::= [a", "[ is not closed"),
        ("root ::= 'a'", "must be double"),
        ("root ::= []", "character class is empty"),
        ('root ::= "\\q"', "the escape \\q is unknown"),
        ('root ::= "\\x4"', "the escape \\x is unknown"),
        ('root ::= "a" ::= "b"', "::= stands inside a rule"),
        ('root ::= ("a"', "a closing ) is missing"),
        ('root ::= "a")', "a ) without its ("),
        ('root ::= "a" | *', "* has nothing to repeat"),
        ('root ::= "a"{0}+', "+ has nothing to repeat"),
        ('root ::= "a"?*', "repeats what is repeated already"),
        ('root ::= "a"{x}', "a repetition must read"),
        ("root ::= <think>", "references to tokens are not supported"),
        ("root ::= ![5]", "references to tokens are not supported"),
        # Each of these ends the process or fills the memory in llama.cpp's own parser.
        ('root ::= "a"{5,3}', "{5,3} ends before it begins"),
        ('root ::= "a"{2001}', "more than 2000 repetitions"),
        ('root ::= "a"{' + "9" * 5000 + "}", "more than 2000 repetitions"),
        ('root ::= "a"{100}{100}', "repetitions of one another"),
        ('root ::= "ab"{2000} ' * 1 + "| " + '"ab"{2000} ' * 100, "too large"),
        ("root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000, "nested more than 300 deep"),
        ('root ::= root "a" | "b"', "the rule root begins with itself"),
        ('root ::= a "x" | "b"\na ::= (root | "c")', "begins with itself"),
        ('root ::= a root "b" | "c"\na ::= b b\nb ::= "x"?', "the rule root begins with itself"),
        (
            "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(4000)) + 'r4000 ::= "a"',
            "too many ways",
        ),
        (
            "root ::= r0\n"
            + "".join(f'r{i} ::= r{i + 1} "x" | r{i + 1} "y"\n' for i in range(64))
            + 'r64 ::= "a"',
            "can begin in too many ways",
        ),
    ],
    ids=lambda text: text[:30],
)
def test_any_other_is_refused_in_one_line_that_says_why(grammar: str, says: str) -> None:
    with pytest.raises(InvalidGrammar) as raised:
        check_gbnf(grammar)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250
