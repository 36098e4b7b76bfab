"""From text to tree, by recursive descent.

condition:   conjunction (or conjunction)…
conjunction: negation (and negation)…
negation:    not negation | comparison
comparison:  sum [= | == | != | <> | < | <= | > | >=  sum]
             sum is [not] null
             sum [not] in (constant, …)
             sum [not] between sum and sum
             sum [not] like 'pattern'
sum:         product (+ | - product)…
product:     unary (* | / | % unary)…
unary:       - unary | primary
primary:     number | 'text' | true | false | column | "column" | function(…) | (condition)
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from streampgs.base.errors import OptionError

_LONGEST, _LONGEST_SHOWN = 1 << 16, 200
_MOST_OPEN, _DEEPEST = 24, 150
"""Parentheses that are open, and levels of the tree: both are walked by recursion."""
_LARGEST_INTEGER, _LARGEST_BELOW_ZERO = 2**64 - 1, 2**63

_TOKENS = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
      | (?P<sign><=|>=|<>|!=|==|[=<>+\-*/%(),])""",
    re.VERBOSE,
)
_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_RESERVED = ("and", "or", "not", "in", "is", "null", "between", "like", "true", "false")
_END = "the end"


@dataclass(frozen=True)
class Source:
    """An option and its text, for errors."""

    flag: str
    text: str

    def error(self, fault: str, at: int, remedy: str) -> OptionError:
        return OptionError(f"{self}: {fault}, at character {at + 1}", remedy)

    def __str__(self) -> str:
        return f'`{self.flag} "{shown(self.text)}"`'


@dataclass(frozen=True)
class Column:
    name: str
    at: int
    """The place in the text, counted from 0."""


@dataclass(frozen=True)
class Constant:
    value: bool | int | float | str
    at: int


@dataclass(frozen=True)
class Apply:
    """An operator or a function."""

    name: str
    args: tuple[Node, ...]
    at: int
    depth: int
    """How many operators and functions are inside of each other."""


Node = Column | Constant | Apply


def columns_of(node: Node) -> Iterator[Column]:
    """The columns in a tree, in the order of the text."""
    if isinstance(node, Column):
        yield node
    elif isinstance(node, Apply):
        for arg in node.args:
            yield from columns_of(arg)


def shown(text: str) -> str:
    """A text of the user as errors show it."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def parsed(source: Source) -> Node:
    """The tree of an expression; OptionError if the text is not one."""
    return _Parser(source).whole()


def quoted(name: str) -> str:
    """The name of a column as it is written in an expression."""
    word = _TOKENS.fullmatch(name)
    plain = word is not None and word.lastgroup == "word" and name.lower() not in _RESERVED
    return name if plain else '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """A reserved word in lower case, or a sign; empty for other tokens."""
        if self.kind == "sign":
            return self.text
        return self.text.lower() if self.kind == "word" and self.text.lower() in _RESERVED else ""

    def __str__(self) -> str:
        return self.text if self.kind == _END else f"'{self.text}'"


def _tokens(source: Source) -> Iterator[_Token]:
    text, at = source.text, 0
    if len(text) > _LONGEST:
        raise source.error("the text is too long", _LONGEST, f"write at most {_LONGEST:,} characters")
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None or text.startswith("--", at):
            raise _unreadable(source, at)
        if match.lastgroup != "space":
            yield _Token(str(match.lastgroup), match.group(), at)
        at = match.end()
    yield _Token(_END, _END, len(text))


def _unreadable(source: Source, at: int) -> OptionError:
    letter = source.text[at]
    if letter == "-":
        return source.error("-- begins a comment in SQL", at, "leave a blank between the two signs")
    if letter in "'\"":
        what = "a text" if letter == "'" else "a column's name"
        return source.error(f"{what} without its closing quote", at, f"write {letter} at its end, twice inside of it")
    remedy = "write column names with other characters in double quotes, texts in single quotes"
    return source.error(f"{letter} is not understood", at, remedy)


class _Parser:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens = list(_tokens(source))
        self._next = 0
        self._open = 0
        """How many rules are inside of each other here."""

    def whole(self) -> Node:
        if self._token.kind == _END:
            self._fail(self._token, "an empty expression", "write a condition such as delay > 15")
        node = self._nested(self._condition)
        if self._token.kind != _END:
            self._fail(self._token, f"{self._token} was not expected", "join conditions with and, or")
        return node

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *words: str) -> _Token | None:
        """The next token, if it is one of these words or signs."""
        token = self._token
        if token.word not in words:
            return None
        self._next += 1
        return token

    def _expect(self, word: str, remedy: str) -> _Token:
        return self._take(word) or self._fail(self._token, f"'{word}' is missing before {self._token}", remedy)

    def _fail(self, token: _Token, fault: str, remedy: str) -> NoReturn:
        raise self._source.error(fault, token.at, remedy)

    def _apply(self, name: str, args: tuple[Node, ...], token: _Token) -> Apply:
        depth = 1 + max(arg.depth if isinstance(arg, Apply) else 0 for arg in args)
        if depth > _DEEPEST:
            self._fail(token, f"more than {_DEEPEST} operators inside of each other", "write it with fewer")
        return Apply(name, args, token.at, depth)

    def _nested(self, rule: Callable[[], Node]) -> Node:
        self._open += 1
        if self._open > _MOST_OPEN:
            fault = f"more than {_MOST_OPEN} parentheses or signs inside of each other"
            self._fail(self._token, fault, "write it with fewer")
        node = rule()
        self._open -= 1
        return node

    def _condition(self) -> Node:
        return self._list("or", lambda: self._list("and", self._negation))

    def _list(self, word: str, part: Callable[[], Node]) -> Node:
        """One level of the tree for any number of parts."""
        first, parts = self._token, [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else self._apply(word, tuple(parts), first)

    def _negation(self) -> Node:
        token = self._take("not")
        return self._comparison() if token is None else self._apply("not", (self._nested(self._negation),), token)

    def _comparison(self) -> Node:
        left = self._sum()
        if token := self._take(*_COMPARISONS):
            return self._apply(_COMPARISONS[token.text], (left, self._sum()), token)
        if token := self._take("is"):
            negated = self._take("not")
            self._expect("null", "write: is null, or: is not null")
            node = self._apply("is null", (left,), token)
        else:
            negated = self._take("not")
            token = self._take("in", "between", "like")
            if token is None and negated is None:
                return left
            if token is None:
                self._fail(self._token, f"{self._token} after 'not'", "write: not in, not between or not like")
            node = self._apply(token.word, (left, *self._compared_with(token.word)), token)
        return self._apply("not", (node,), token) if negated else node

    def _compared_with(self, word: str) -> tuple[Node, ...]:
        if word == "in":
            self._expect("(", "write: in (1, 2)")
            return self._arguments()
        first = self._sum()
        if word == "like":
            return (first,)
        self._expect("and", "write: between LOW and HIGH")
        return first, self._sum()

    def _sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._unary))

    def _chain(self, signs: tuple[str, ...], part: Callable[[], Node]) -> Node:
        """Operators of the same rank, from left to right."""
        node = part()
        while token := self._take(*signs):
            node = self._apply(token.text, (node, part()), token)
        return node

    def _unary(self) -> Node:
        token = self._take("-")
        if token is None:
            return self._primary()
        node = self._nested(self._unary)
        if isinstance(node, Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            if isinstance(node.value, int) and node.value > _LARGEST_BELOW_ZERO:
                self._too_large(token)
            return Constant(-node.value, token.at)
        return self._apply("negative", (node,), token)

    def _primary(self) -> Node:
        token = self._token
        if self._take("("):
            node = self._nested(self._condition)
            self._expect(")", "close the parenthesis")
            return node
        if self._take("true", "false"):
            return Constant(token.word == "true", token.at)
        if token.word == "null":
            self._fail(token, "null is not a value", "write: COLUMN is null, or: COLUMN is not null")
        if token.word or token.kind == _END:
            self._fail(token, f"a column or a value is missing before {token}", "the reserved words need double quotes")
        self._next += 1
        if token.kind == "number":
            return Constant(self._number(token), token.at)
        if token.kind == "text":
            return Constant(token.text[1:-1].replace("''", "'"), token.at)
        if token.kind == "quoted":
            return Column(token.text[1:-1].replace('""', '"'), token.at)
        if self._take("("):
            return self._apply(token.text.lower(), self._arguments(), token)
        return Column(token.text, token.at)

    def _number(self, token: _Token) -> int | float:
        value = float(token.text)
        if not math.isfinite(value):
            self._fail(token, "a number beyond the range of float64", "write a smaller one")
        if not token.text.isdecimal():
            return value
        if int(token.text) > _LARGEST_INTEGER:
            self._too_large(token)
        return int(token.text)

    def _too_large(self, token: _Token) -> NoReturn:
        self._fail(token, "an integer beyond 64 bits", "write it with a decimal point: it is a float64 then")

    def _arguments(self) -> tuple[Node, ...]:
        found = [self._nested(self._condition)]
        while self._take(","):
            found.append(self._nested(self._condition))
        self._expect(")", "close the parenthesis")
        return tuple(found)
