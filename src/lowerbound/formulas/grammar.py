"""What a formula says: the response, coefficients, curves and groups; formulae parses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lowerbound.errors import FormulaError
from lowerbound.errors.storage import needed

SMOOTH = "s"
PROPORTIONS = ("p", "prop", "proportion")
ABOUT = ("trials", "weights")


@dataclass(frozen=True, eq=False)
class Bar:
    """One term of groups, (1 + x | g): effects of `terms` that vary with `factor`."""

    terms: tuple[Any, ...]
    factor: Any
    correlated: bool

    @property
    def text(self) -> str:
        """The term, written out."""
        names = ["1" if t.name == "Intercept" else t.name for t in self.terms]
        names = names if "1" in names else ["0", *names]
        return f"({' + '.join(names)} {'|' if self.correlated else '||'} {self.factor.name})"


@dataclass(frozen=True, eq=False)
class Parsed:
    """A formula in parts. Terms are those of formulae; a number stands for itself.

    about: "trials" and "weights" of the rows, where they are given.
    """

    text: str
    response: Any
    about: dict[str, Any]
    common: tuple[Any, ...]
    smooths: tuple[Any, ...]
    bars: tuple[Bar, ...]

    def columns(self, response: bool = True, weights: bool = True) -> set[str]:
        """All columns that the formula names; without those of the response, or of weights."""
        terms = [*self.common, *self.smooths, *(t for bar in self.bars for t in bar.terms)]
        terms += [bar.factor for bar in self.bars]
        terms += [self.response] if response else []
        about = [t for name, t in self.about.items() if weights or name != "weights"]
        return _names([*terms, *(t for t in about if not isinstance(t, int | float))])

    @property
    def response_columns(self) -> set[str]:
        """Columns of the response itself."""
        return _names([self.response])


def _names(terms: list[Any]) -> set[str]:
    """The columns of terms; formulae has the empty name for numbers."""
    return {str(name) for term in terms for name in term.var_names if name}


def parse(text: str) -> Parsed:
    """Read a formula."""
    with needed("Formulas need formulae, which is not installed", "formula"):
        from formulae.expr import Binary

    tree = _tree(text)
    if not isinstance(tree, Binary) or tree.operator.kind != "TILDE":
        raise FormulaError.syntax(text, 'it has no "~"')
    response, about = _response(text, tree.left)
    smooths: list[Any] = []
    bars: list[Any] = []
    rest = _taken_apart(tree.right, smooths, bars)
    common = _terms(text, rest)
    return Parsed(
        text,
        response,
        about,
        common,
        tuple(_resolved(text, node) for node in smooths),
        tuple(bar for node in bars for bar in _bars(text, node)),
    )


def _tree(text: str) -> Any:
    """The expression tree of formulae, in which || is one operator."""
    from formulae.parser import ParseError, Parser
    from formulae.scanner import ScanError, Scanner
    from formulae.token import Token

    if not isinstance(text, str) or not text.strip():
        raise FormulaError.syntax(text, "it is empty" if isinstance(text, str) else "it is no text")
    if text.count("`") % 2:
        raise FormulaError.syntax(text, "a ` is never closed")
    _check_balanced(text)
    try:
        tokens: list[Any] = []
        for token in Scanner(text).scan():
            doubled = token.kind == "PIPE" and tokens and tokens[-1].kind == "PIPE"
            tokens[-1:] = [Token("PIPE", "||")] if doubled else [*tokens[-1:], token]
        parser = Parser(tokens)
        tree = parser.parse()
    except (ParseError, ScanError) as error:
        raise FormulaError.syntax(text, _said(error)) from error
    if not parser.at_end():
        found = parser.peek().lexeme
        if found in ("|", "||"):
            said = f'a "{found}" stands outside of parentheses: write (1 {found} g)'
        else:
            said = f"it makes no sense from {found!r} on"
        raise FormulaError.syntax(text, said)
    return tree


def _check_balanced(text: str) -> None:
    """Name the parenthesis that has no other; the parser would name what it expected."""
    open_ones: list[int] = []
    for place, character in enumerate(text):
        if character == "(":
            open_ones.append(place)
        elif character == ")":
            if not open_ones:
                said = f'the ")" at character {place + 1} closes nothing'
                raise FormulaError.syntax(text, said)
            open_ones.pop()
    if open_ones:
        said = f'the "(" at character {open_ones[-1] + 1} is never closed'
        raise FormulaError.syntax(text, said)


def _said(error: Exception) -> str:
    """The words of the parser, as a part of a sentence."""
    said = str(error).rstrip(".")
    if said == "Don't know how to parse ''":
        return "it ends where a term is expected"
    said = said.replace("Don't know how to parse", "no term begins with")
    return said[:1].lower() + said[1:]


def _taken_apart(node: Any, smooths: list[Any], bars: list[Any]) -> Any:
    """The tree without the summands that are curves or groups, which go to their lists."""
    from formulae.expr import Binary, Grouping

    if isinstance(node, Grouping):
        if isinstance(node.expression, Binary) and node.expression.operator.kind == "PIPE":
            bars.append(node.expression)
            return None
        inner = _taken_apart(node.expression, smooths, bars)
        return None if inner is None else Grouping(inner)
    if _callee(node) == SMOOTH:
        smooths.append(node)
        return None
    if isinstance(node, Binary) and node.operator.kind in ("PLUS", "MINUS"):
        left = _taken_apart(node.left, smooths, bars)
        adds = node.operator.kind == "PLUS"
        right = _taken_apart(node.right, smooths, bars) if adds else node.right
        if left is None or right is None:
            return right if left is None else left
        return Binary(left, node.operator, right)
    return node


def _callee(node: Any) -> str | None:
    """The name of the function, where the node is a call of one."""
    from formulae.expr import Call

    return str(node.callee.name.lexeme) if isinstance(node, Call) else None


def _resolved(text: str, node: Any) -> Any:
    """What formulae makes of an expression."""
    from formulae.resolver import Resolver

    try:
        return Resolver(node).resolve()
    except Exception as error:  # formulae raises whatever its operators meet
        raise FormulaError.syntax(text, f"a term of it has no meaning ({_said(error)})") from error


def _terms(text: str, node: Any) -> tuple[Any, ...]:
    """The terms of a sum."""
    from formulae.terms.terms import Model, NegatedIntercept

    if node is None:
        return ()
    found = _resolved(text, node)
    if isinstance(found, NegatedIntercept):
        return ()
    if not isinstance(found, Model):
        found = Model(found)
    if found.group_terms:
        raise FormulaError.syntax(text, "groups may only be added, not multiplied")
    for term in found.common_terms:
        _check_parts(text, term)
    return tuple(found.common_terms)


def _check_parts(text: str, term: Any) -> None:
    """A curve stands alone, and a number but 0 and 1 is no term."""
    for part in getattr(term, "components", ()):
        if str(getattr(getattr(part, "call", None), "callee", "")) == SMOOTH:
            why = "has a curve s(...) inside another term"
            raise FormulaError.term(text, term.name, why, "Expected a curve by itself: + s(z).")
        if isinstance(part.name, int | float):
            raise FormulaError.syntax(text, f"the number {part.name} is no term")


def _bars(text: str, node: Any) -> list[Bar]:
    """The bars of (terms | factors): one for every factor, and, of ||, for every term."""
    model = _resolved(text, node)
    found: dict[str, list[Any]] = {}
    factors: dict[str, Any] = {}
    for group in getattr(model, "group_terms", [model]):
        if not hasattr(group, "factor"):
            raise FormulaError.syntax(text, "a bar has nothing that varies, or no groups")
        _check_parts(text, group.expr)
        found.setdefault(group.factor.name, []).append(group.expr)
        factors.setdefault(group.factor.name, group.factor)
    joint = node.operator.lexeme == "|"
    if joint:
        return [Bar(tuple(terms), factors[name], True) for name, terms in found.items()]
    return [Bar((t,), factors[name], False) for name, terms in found.items() for t in terms]


def _response(text: str, node: Any) -> tuple[Any, dict[str, Any]]:
    """The response, and what is said about it: y | trials(n) + weights(w), or p(y, n)."""
    from formulae.expr import Binary
    from formulae.terms.terms import Term

    about: dict[str, Any] = {}
    if isinstance(node, Binary) and node.operator.kind == "PIPE":
        for part in _summands(node.right):
            name = _callee(part)
            if name not in ABOUT or len(part.args) != 1:
                raise FormulaError.response(text, "something else than trials(n), weights(w)")
            about[name] = _number_or_term(text, part.args[0])
        node = node.left
    if _callee(node) in PROPORTIONS:
        if len(node.args) != 2:
            raise FormulaError.response(text, f"{_callee(node)}(...) of {len(node.args)} arguments")
        about["trials"] = _number_or_term(text, node.args[1])
        node = node.args[0]
    response = _resolved(text, node)
    if not isinstance(response, Term) or len(response.components) != 1:
        raise FormulaError.response(text, "several terms")
    response.components[0].is_response = True
    return response, about


def _summands(node: Any) -> list[Any]:
    from formulae.expr import Binary

    if isinstance(node, Binary) and node.operator.kind == "PLUS":
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _number_or_term(text: str, node: Any) -> Any:
    from formulae.expr import Literal

    if isinstance(node, Literal) and isinstance(node.value, int | float):
        return node.value
    terms = _terms(text, node)
    if len(terms) != 1 or not hasattr(terms[0], "components"):
        raise FormulaError.response(text, "trials or weights of several terms")
    return terms[0]
