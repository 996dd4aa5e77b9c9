"""The two programs inside the boxes of the code grader: the worker, which holds a reply's code, and the judge.

This file's text is what runs there, with the standard library alone; the grader (`code`) never imports it.

The worker loads the code and computes what it is asked. The judge runs the tests in a box of its own, where the
reply's names are stand-ins: a call travels to the worker as plain data and comes back as plain data. So the code
never shares a process with a test, an expected value or the report. It can send what it likes through the channel;
that is nothing but another answer.

Invariants of the judge:

- Plain values (None, truth values, numbers, text, bytes, the built-in containers, dates, decimals) arrive as
  themselves, rebuilt here. Any other object stays in the worker, and the judge has a `Remote` for it.
- A `Remote` never equals a plain value, and cannot be ordered against one: an object equal to everything equals
  nothing. An instance of a subclass of a plain type (a named tuple) compares as the plain value that came with it.
- What arithmetic on a `Remote` and a plain value gave cannot be turned back into a number, or the code could answer
  `f() - 5` with what the test wants to see.
- The worker reaches nothing here but functions that a test passed, by calling them, and public fields of instances of
  classes that the tests define.
- Each message is bounded. When the worker is gone or breaks the protocol, no test passes any more.

Not covered: identity of returned objects (except an argument given back), tests that look at printed text, that
await, or that catch a class of error by a name the code defines only later.
"""

from __future__ import annotations

import ast
import builtins
import collections
import dataclasses
import datetime
import decimal
import fractions
import functools
import importlib
import itertools
import json
import math
import operator
import os
import socket
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

MOST = 4 * 1024 * 1024
"""Bytes of the longest message."""

_LIBRARY = [
    "bisect",
    "cmath",
    "collections",
    "copy",
    "datetime",
    "decimal",
    "fractions",
    "functools",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "re",
    "statistics",
    "string",
    "typing",
]
_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, object, type(None))
}
_BASES: tuple[type, ...] = (int, float, complex, str, bytes, tuple, list, dict, set, frozenset, collections.deque)


class Lost(BaseException):
    """The worker is gone, or does not keep to the protocol. No test may catch this as an Exception."""


# --- Both sides -----------------------------------------------------------------------------------------------


class Peer:
    """One end of the channel: asks the other end, and answers while it waits."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.lines = self.socket.makefile("rb")
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.errors: dict[str, type[BaseException]] = {}
        self.lost: str | None = None

    # Messages

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        if len(data) > MOST:
            raise ValueError(f"a value is too large to hand over ({len(data)} bytes)")
        try:
            self.socket.sendall(data)
        except OSError:
            self.lose("the program ended before it had answered")

    def receive(self) -> dict[str, Any]:
        try:
            data = self.lines.readline(MOST + 1)
        except OSError:
            data = b""
        if not data.endswith(b"\n"):
            self.lose("it sent too much" if data else "the program ended before it had answered")
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.lose("what came back cannot be read")
        return message

    def lose(self, why: str) -> NoReturn:
        self.lost = self.lost or why
        raise Lost(self.lost)

    def ask(self, do: str, number: int, *values: Any, **named: Any) -> Any:
        """Have the other end do something with its object `number`; lists and the like change as they do there."""
        if self.lost:
            raise Lost(self.lost)
        sent = [*values, *named.values()]
        self.send(
            {
                "do": do,
                "on": number,
                "values": [self.encode(value) for value in values],
                "named": {name: self.encode(value) for name, value in named.items()},
            }
        )
        while True:
            message = self.receive()
            if "do" in message:
                self.answer(message)
                continue
            try:
                for place, new in message.get("changed", []):
                    _change(sent[place], self.decode(new))
                if "bad" in message:
                    names, text = [str(name) for name in message["bad"]], str(message.get("text", ""))[:1000]
                elif "same" in message:
                    return sent[message["same"]]
                else:
                    return self.decode(message["ok"])
            except Exception:
                self.lose("what came back cannot be read")
            self.throw(names, text)

    def throw(self, names: list[str], text: str) -> NoReturn:
        """Raise the nearest class of error known here."""
        for name in names:
            kind = self.errors.get(name) or getattr(builtins, name, None)
            if isinstance(kind, type) and issubclass(kind, BaseException):
                try:
                    error = kind(text)
                except TypeError:
                    continue
                raise error
        raise RuntimeError(text)

    def answer(self, message: dict[str, Any]) -> None:
        """Do what the other end asks. Its errors, whatever they are, travel back."""
        reply: dict[str, Any]
        try:
            values = [self.decode(value) for value in message["values"]]
            named = {name: self.decode(value) for name, value in message["named"].items()}
            before = [*message["values"], *message["named"].values()]
            given = [*values, *named.values()]
            result = self.do(str(message["do"]), int(message["on"]), values, named)
            same = [place for place, value in enumerate(given) if value is result and _mutable(value)]
            reply = {"same": same[0]} if same else {"ok": self.encode(result)}
            changed = [
                (place, now)
                for place, (value, was) in enumerate(zip(given, before, strict=True))
                if _mutable(value) and (now := self.encode(value)) != was
            ]
            if changed:
                reply["changed"] = changed
            self.send(reply)
        except Lost:
            raise
        except BaseException as error:
            names = [kind.__name__ for kind in type(error).__mro__]
            self.send({"bad": names, "text": _words(error)})

    def do(self, do: str, number: int, values: list[Any], named: dict[str, Any]) -> Any:
        raise NotImplementedError

    # Values

    def encode(self, value: Any, depth: int = 0) -> Any:
        """JSON values for a value. What is not plain stays here and gets a number."""
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if -(2**63) < value < 2**63 else ["int", hex(value)]
        if kind is float:
            return ["float", value.hex()]
        if kind is complex:
            return ["complex", value.real.hex(), value.imag.hex()]
        if kind is bytes or kind is bytearray:
            return [kind.__name__, value.hex()]
        if depth > 200:
            raise ValueError("a value is nested too deeply to hand over")
        if kind in (list, tuple, set, frozenset, collections.deque):
            return [kind.__name__, [self.encode(item, depth + 1) for item in value]]
        if kind in (dict, collections.Counter, collections.OrderedDict):
            pairs = [[self.encode(key, depth + 1), self.encode(item, depth + 1)] for key, item in value.items()]
            return [kind.__name__, pairs]
        if kind is range:
            return ["range", self.encode([value.start, value.stop, value.step])]
        if kind in (decimal.Decimal, fractions.Fraction):
            return [kind.__name__, str(value)]
        if kind in (datetime.date, datetime.datetime, datetime.time) and getattr(value, "tzinfo", None) is None:
            return [kind.__name__, value.isoformat()]
        if kind is datetime.timedelta:
            return ["timedelta", value.days, value.seconds, value.microseconds]
        if kind is Remote:
            return ["yours", _of(value).number]
        if isinstance(value, type) and _TYPES.get(value.__name__) is value:
            return ["type", value.__name__]
        return ["mine", self.number(value), *self.about(value, depth)]

    def number(self, value: Any) -> int:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.objects) + 1
            self.objects[len(self.objects) + 1] = value
        return self.numbers[id(value)]

    def about(self, value: Any, depth: int) -> list[Any]:
        """Name of the type, and the plain value inside in a list of one, if there is one."""
        if not isinstance(value, type):
            for base in _BASES:
                if isinstance(value, base):
                    return [type(value).__name__, [self.encode(_inside(base, value), depth + 1)]]
        return [type(value).__name__, []]

    def decode(self, value: Any) -> Any:
        """The value of what `encode` made. Raises an error of some kind for anything else."""
        if value is None or isinstance(value, bool | str | int):
            return value
        name, *rest = value
        match name, rest:
            case "int", [text]:
                return int(text, 16)
            case "float", [text]:
                return float.fromhex(text)
            case "complex", [real, imaginary]:
                return complex(float.fromhex(real), float.fromhex(imaginary))
            case "bytes", [text]:
                return bytes.fromhex(text)
            case "bytearray", [text]:
                return bytearray.fromhex(text)
            case (("list" | "tuple" | "set" | "frozenset" | "deque"), [items]):
                kind = getattr(collections, name) if name == "deque" else getattr(builtins, name)
                return kind(self.decode(item) for item in items)
            case (("dict" | "Counter" | "OrderedDict"), [pairs]):
                read = {self.decode(key): self.decode(item) for key, item in pairs}
                return read if name == "dict" else getattr(collections, name)(read)
            case "range", [parts]:
                return range(*self.decode(parts))
            case "Decimal", [text]:
                return decimal.Decimal(text)
            case "Fraction", [text]:
                return fractions.Fraction(text)
            case (("date" | "datetime" | "time"), [text]):
                return getattr(datetime, name).fromisoformat(text)
            case "timedelta", [int(days), int(seconds), int(micro)]:
                return datetime.timedelta(days, seconds, micro)
            case "yours", [int(number)]:
                return self.objects[number]
            case "type", [str(text)]:
                return _TYPES[text]
            case "mine", [int(number), str(text), list(plain)]:
                return Remote(Link(self, number, text, tuple(self.decode(item) for item in plain)))
        raise ValueError("no such value")


def _inside(base: Any, value: Any) -> Any:
    """The plain value inside an instance of a subclass, whatever that class does with reading it."""
    if base is dict:
        return {key: dict.__getitem__(value, key) for key in dict.keys(value)}
    if base in (int, float, str, bytes, complex):
        return base.__add__(value, base())
    return base(base.__iter__(value))


def _mutable(value: Any) -> bool:
    return type(value) in (
        list,
        dict,
        set,
        bytearray,
        collections.deque,
        collections.Counter,
        collections.OrderedDict,
    )


def _change(target: Any, new: Any) -> None:
    """Make a container hold what another holds."""
    if type(target) is not type(new) or not _mutable(target):
        raise ValueError("no container of that kind")
    if isinstance(target, list | bytearray):
        target[:] = new
    else:
        target.clear()
        (target.extend if isinstance(target, collections.deque) else target.update)(new)


def _words(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except Exception:
        return "an error without words"


class Link:
    """What is known of an object at the other end. `plain` holds the plain value inside it, if there is one."""

    __slots__ = ("name", "number", "peer", "plain", "tainted")

    def __init__(self, peer: Peer, number: int, name: str, plain: tuple[Any, ...]) -> None:
        self.peer, self.number, self.name, self.plain = peer, number, name, plain
        self.tainted = False


def _of(remote: Any) -> Link:
    link = object.__getattribute__(remote, "_link")
    assert isinstance(link, Link)
    return link


def _plain(value: Any) -> tuple[Any, ...]:
    """The plain value to compare with, in a tuple of one; empty for an object that has none."""
    return _of(value).plain if type(value) is Remote else (value,)


class Remote:
    """A stand-in for an object at the other end."""

    __slots__ = ("_link",)

    def __init__(self, link: Link) -> None:
        object.__setattr__(self, "_link", link)

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ask(self, "set", name, value)

    def __call__(self, *values: Any, **named: Any) -> Any:
        link = _of(self)
        return link.peer.ask("call", link.number, *values, **named)

    def __instancecheck__(self, value: Any) -> bool:
        return type(value) is Remote and _ask(self, "isinstance", value) is True

    def __eq__(self, other: object) -> bool:
        if type(other) is Remote and not (_of(self).plain and _of(other).plain):
            return _ask(self, "eq", other) is True
        mine, theirs = _plain(self), _plain(other)
        return bool(mine and theirs) and bool(mine[0] == theirs[0])

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        plain = _of(self).plain
        return hash(plain[0]) if plain else hash(_of(self).number)

    def __bool__(self) -> bool:
        plain = _of(self).plain
        return bool(plain[0]) if plain else _ask(self, "bool") is True

    def __iter__(self) -> Iterator[Any]:
        plain = _of(self).plain
        if plain:
            return iter(plain[0])
        walk = _ask(self, "iter")
        return walk if type(walk) is Remote else iter(walk)

    def __contains__(self, item: Any) -> bool:
        plain = _of(self).plain
        return item in plain[0] if plain else _ask(self, "contains", item) is True

    def __repr__(self) -> str:
        plain = _of(self).plain
        return f"{_of(self).name}({plain[0]!r})" if plain else f"<a {_of(self).name} of the reply>"


def _ask(remote: Remote, do: str, *values: Any) -> Any:
    link = _of(remote)
    return link.peer.ask(do, link.number, *values)


_ORDER = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
_ARITHMETIC = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
_CONVERSIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "complex": complex,
    "index": operator.index,
    "round": round,
    "format": format,
    "str": str,
}
_SIMPLE: dict[str, Callable[..., Any]] = {
    "len": len,
    "next": next,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "reversed": reversed,
    "enter": lambda value: type(value).__enter__(value),
    "exit": lambda value, *_: type(value).__exit__(value, None, None, None),
}


def _symbol(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(operator, f"__{name}__")
    return function


def _swapped(name: str) -> Callable[..., Any]:
    return lambda b, a: _symbol(name)(a, b)


OPERATIONS: dict[str, Callable[..., Any]] = {
    **_CONVERSIONS,
    **_SIMPLE,
    **_ORDER,
    **{name: _symbol(name) for name in _ARITHMETIC},
    **{f"r{name}": _swapped(name) for name in _ARITHMETIC},
    "get": getattr,
    "set": setattr,
    "call": lambda function, *values, **named: function(*values, **named),
    "isinstance": lambda kind, value: isinstance(value, kind),
    "eq": lambda a, b: bool(a == b),
    "bool": bool,
    "iter": iter,
    "contains": lambda value, item: item in value,
}


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Remote, *values: Any) -> Any:
        return _ask(self, name, *values)

    return method


def _convert(name: str) -> Callable[..., Any]:
    def method(self: Remote, *values: Any) -> Any:
        plain = _of(self).plain
        if plain:
            return _CONVERSIONS[name](plain[0], *values)
        if _of(self).tainted:
            raise TypeError(f"an object of the reply, calculated with a value of the test, is no number: {name}")
        return _ask(self, name, *values)

    return method


def _ordered(name: str) -> Callable[..., Any]:
    def method(self: Remote, other: Any) -> Any:
        mine, theirs = _plain(self), _plain(other)
        if mine and theirs:
            return _ORDER[name](mine[0], theirs[0])
        if type(other) is Remote:
            return _ask(self, name, other) is True
        return NotImplemented

    return method


def _calculated(name: str, reflected: bool) -> Callable[..., Any]:
    def method(self: Remote, other: Any) -> Any:
        mine, theirs = _plain(self), _plain(other)
        if mine and theirs:
            return _symbol(name)(*(theirs + mine if reflected else mine + theirs))
        result = _ask(self, f"r{name}" if reflected else name, other)
        if type(other) is Remote:
            return result
        if type(result) is not Remote:
            raise TypeError(f"an object of the reply was calculated with a value of the test, and gave {result!r}")
        _of(result).tainted = True
        _of(result).plain = ()
        return result

    return method


for _name in _SIMPLE:
    setattr(Remote, f"__{_name}__", _forward(_name))
for _name in _CONVERSIONS:
    setattr(Remote, f"__{_name}__", _convert(_name))
for _name in _ORDER:
    setattr(Remote, f"__{_name}__", _ordered(_name))
for _name in _ARITHMETIC:
    setattr(Remote, f"__{_name}__", _calculated(_name, reflected=False))
    setattr(Remote, f"__r{_name}__", _calculated(_name, reflected=True))


# --- The worker -----------------------------------------------------------------------------------------------


class Worker(Peer):
    """Holds the reply's code and does whatever it is asked with it."""

    def load(self, code: str, entry: str) -> None:
        """Run the code. What it raises, an exit too, is told when the judge asks."""
        module = types.ModuleType("solution")
        sys.modules["solution"] = module
        self.module, self.entry, self.failure = module, entry, ""
        try:
            exec(compile(code, "solution.py", "exec"), module.__dict__)
        except BaseException as error:
            self.failure = f"{type(error).__name__}: {_words(error)}"

    def do(self, do: str, number: int, values: list[Any], named: dict[str, Any]) -> Any:
        if do == "load":
            return self.failure
        if do == "name":
            return self.named(str(values[0]))
        return OPERATIONS[do](self.objects[number], *values, **named)

    def named(self, name: str) -> Any:
        """What the code calls `name`: a kind, and what belongs to it."""
        space = self.module.__dict__
        if name in space:
            value = space[name]
            if isinstance(value, type) and issubclass(value, BaseException):
                return ["error", [kind.__name__ for kind in value.__mro__], value]
            home = getattr(value, "__module__", None)
            if isinstance(value, types.ModuleType) or (isinstance(home, str) and home in _LIBRARY):
                return ["library", str(home), value]
            return ["value", None, value]
        if name == self.entry:
            kinds = [kind for kind in space.values() if isinstance(kind, type) and hasattr(kind, name)]
            kinds.sort(key=lambda kind: kind.__name__ != "Solution")
            if kinds:
                return ["value", None, lambda *values, **named: getattr(kinds[0](), name)(*values, **named)]
        return ["none", None, None]

    def serve(self) -> None:
        while True:
            self.answer(self.receive())


# --- The judge ------------------------------------------------------------------------------------------------


REACHED = itertools.count()
"""Goes up with each assertion that is reached."""


class Failed(AssertionError):
    """An assertion of a test does not hold."""


class Judge(Peer):
    """Runs the tests and reports each of them."""

    def do(self, do: str, number: int, values: list[Any], named: dict[str, Any]) -> Any:
        target = self.objects[number]
        if do == "call" and isinstance(target, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
            return target(*values, **named)
        if do in ("iter", "next") and isinstance(target, Iterator):
            return target if do == "iter" else next(target)
        public = bool(values) and isinstance(values[0], str) and not values[0].startswith("_")
        if do in ("get", "set") and public and type(target).__module__ == "tests":
            return OPERATIONS[do](target, *values)
        raise TypeError("a test's object was used in a way that the grader does not offer")

    def bind(self, names: list[str], entry: str, space: dict[str, Any]) -> None:
        """Give the tests the names of the reply that they use."""
        module = types.ModuleType("solution")
        sys.modules["solution"] = module
        for name in names:
            if hasattr(builtins, name) and name != entry:
                continue
            if name in _LIBRARY and name != entry:
                space[name] = importlib.import_module(name)  # never one that the reply made
                continue
            kind, more, value = self.ask("name", 0, name)
            if kind == "none":
                continue
            if kind == "library":
                home = importlib.import_module(more) if more in _LIBRARY else None
                if not hasattr(home, name):
                    continue
                value = getattr(home, name)
            elif kind == "error":
                value = self.errors[name] = _error_class(name, [str(word) for word in more[1:]])
            space[name] = value
            setattr(module, name, value)


def _error_class(name: str, parents: list[str]) -> type[BaseException]:
    for parent in parents:
        base = getattr(builtins, parent, None)
        if isinstance(base, type) and issubclass(base, Exception):
            return type(name, (base,), {})
    return type(name, (Exception,), {})


_COMPARE: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "Eq": ("==", operator.eq),
    "NotEq": ("!=", operator.ne),
    "Lt": ("<", operator.lt),
    "LtE": ("<=", operator.le),
    "Gt": (">", operator.gt),
    "GtE": (">=", operator.ge),
    "Is": ("is", operator.is_),
    "IsNot": ("is not", operator.is_not),
    "In": ("in", lambda a, b: a in b),
    "NotIn": ("not in", lambda a, b: a not in b),
}


def short(value: Any) -> str:
    """A value in at most 200 characters."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<a value that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= 200 else text[:197] + "..."


def check_pair(kind: str, left: Any, right: Any, swapped: bool, source: str, words: Callable[[], Any]) -> None:
    """`assert left <op> right`, with words that tell both."""
    next(REACHED)
    sign, compare = _COMPARE[kind]
    if compare(left, right):
        return
    got, wanted = (right, left) if swapped else (left, right)
    if kind in ("Eq", "Is"):
        raise Failed(f"expected {short(wanted)}, got {short(got)}{_said(words)}")
    raise Failed(f"{source} does not hold: {short(left)} {sign} {short(right)}{_said(words)}")


def check_true(value: Any, source: str, words: Callable[[], Any]) -> None:
    """`assert value`."""
    next(REACHED)
    if not value:
        raise Failed(f"{source} does not hold: it is {short(value)}{_said(words)}")


def _said(words: Callable[[], Any]) -> str:
    text = words()
    return "" if text is None else f" ({str(text)[:200]})"


class _Asserts(ast.NodeTransformer):
    """Turns assert statements into calls of the two functions above."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        source = ast.unparse(node.test)
        words: ast.expr = ast.Lambda(
            ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
            node.msg or ast.Constant(None),
        )
        if isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
            left, right = node.test.left, node.test.comparators[0]
            swapped = _literal(left) and not _literal(right)
            values: list[ast.expr] = [
                ast.Constant(type(node.test.ops[0]).__name__),
                left,
                right,
                ast.Constant(swapped),
            ]
            call = ast.Call(ast.Name("__check_pair__", ast.Load()), [*values, ast.Constant(source), words], [])
        else:
            call = ast.Call(ast.Name("__check_true__", ast.Load()), [node.test, ast.Constant(source), words], [])
        return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))


def _literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def same(got: Any, wanted: Any) -> bool:
    """Whether a result is the expected JSON value. A truth value is no number; a tuple may stand for a list."""
    if type(got) is Remote:
        plain = _of(got).plain
        return bool(plain) and same(plain[0], wanted)
    if isinstance(wanted, bool) or isinstance(got, bool) or wanted is None or got is None:
        return type(got) is type(wanted) and bool(got == wanted)
    if isinstance(wanted, int | float) and isinstance(got, int | float):
        exact = isinstance(wanted, int) and isinstance(got, int)
        return bool(got == wanted) if exact else math.isclose(got, wanted, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(wanted, list) and isinstance(got, list | tuple):
        return len(got) == len(wanted) and all(same(a, b) for a, b in zip(got, wanted, strict=True))
    if isinstance(wanted, dict) and isinstance(got, dict):
        keyed = {key if isinstance(key, str) else json.dumps(key): value for key, value in got.items()}
        return (
            len(keyed) == len(got) and keyed.keys() == wanted.keys() and all(same(keyed[k], wanted[k]) for k in keyed)
        )
    return type(got) is type(wanted) and bool(got == wanted)


@dataclasses.dataclass(frozen=True)
class Step:
    """Something to run. `counts`: it is a test. `reaches`: an assertion must be reached for it to have passed."""

    run: Callable[[], object]
    counts: bool
    reaches: bool = False


def _reaches(node: ast.AST) -> bool:
    """Whether to demand an assertion. Not where an error is the expected way past it."""
    inside = list(ast.walk(node))
    return any(isinstance(part, ast.Assert) for part in inside) and not any(
        isinstance(part, ast.Try | ast.With) for part in inside
    )


class Trial:
    """The tests of a task in their order."""

    def __init__(
        self, judge: Judge, tests: list[Any], entry: str, names: list[str], report: Callable[..., None]
    ) -> None:
        self.judge, self.entry, self.names, self.report = judge, entry, names, report
        self.space: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
        self.space.update(__check_pair__=check_pair, __check_true__=check_true)
        module = types.ModuleType("tests")
        module.__dict__.update(self.space)
        self.space = module.__dict__
        sys.modules["tests"] = module
        self.steps: list[Step] = []
        self.functions: list[Step] = []
        for test in tests:
            if isinstance(test, dict):
                self.steps.append(Step(functools.partial(self.call, test), counts=True))
            else:
                self.plan(ast.parse(test))

    def plan(self, tree: ast.Module) -> None:
        """A step for each stretch of set-up and each assertion, then one for each test function."""
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                self.functions.append(Step(functools.partial(self.function, node.name), True, _reaches(node)))
            elif isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1:
                self.functions.append(Step(self.check, True, _reaches(node)))
            elif isinstance(node, ast.ClassDef) and node.bases:
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and part.name.startswith("test"):
                        run = functools.partial(self.case, node.name, part.name)
                        self.functions.append(Step(run, True, _reaches(part)))
            defines = isinstance(node, ast.FunctionDef | ast.ClassDef)
            counts = not defines and any(isinstance(part, ast.Assert) for part in ast.walk(node))
            reaches = counts and _reaches(node)
            small = ast.fix_missing_locations(_Asserts().visit(ast.Module([node], [])))
            self.steps.append(
                Step(functools.partial(exec, compile(small, "tests.py", "exec"), self.space), counts, reaches)
            )

    def function(self, name: str) -> None:
        self.space[name]()

    def check(self) -> None:
        self.space["check"](self.space[self.entry])

    def call(self, test: dict[str, Any]) -> None:
        got = self.space[self.entry](*test.get("args", []), **test.get("kwargs", {}))
        if not same(got, test["expected"]):
            raise Failed(f"expected {short(test['expected'])}, got {short(got)}")

    def case(self, kind: str, method: str) -> None:
        result = unittest.TestResult()
        self.space[kind](method).run(result)
        for _, trace in [*result.failures, *result.errors]:
            raise Failed(trace.strip().splitlines()[-1])
        if result.testsRun != 1 or result.skipped or result.expectedFailures or result.unexpectedSuccesses:
            raise Failed("the test did not run to its end")

    def run(self) -> None:
        steps = [*self.steps, *self.functions]
        self.report(plan=sum(step.counts for step in steps))
        try:
            failure = self.judge.ask("load", 0)
            self.report(load=str(failure)[:500])
            if failure != "":
                return
            self.judge.bind(self.names, self.entry, self.space)
        except Lost as error:
            self.report(load=str(error))
            return
        except Exception:
            self.report(load="it does not keep to the protocol")
            return
        broken = ""
        for step in steps:
            why = broken
            if not why:
                before = next(REACHED)
                try:
                    step.run()
                    if step.reaches and next(REACHED) == before + 1:
                        why = "no assertion was reached"
                except Failed as error:
                    why = str(error)
                except BaseException as error:
                    why = f"it raised {type(error).__name__}: {_words(error)}".removesuffix(": ")
                why = self.judge.lost or why
            if step.counts:
                self.report(passed=not why, why=why[:600])
            elif why:
                broken = f"a step before it failed: {why}"
        self.report(end=True)


def main() -> None:
    """`sys.argv[1]` is the channel; stdin holds the settings, with `code` for the worker."""
    settings = json.loads(sys.stdin.buffer.read())
    descriptor = int(sys.argv[1])
    if "code" in settings:
        worker = Worker(descriptor)
        worker.load(settings["code"], settings["entry"])
        worker.serve()
        return
    out = os.fdopen(os.dup(1), "w")
    sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")

    def report(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    Trial(Judge(descriptor), settings["tests"], settings["entry"], settings["names"], report).run()


if __name__ == "__main__":
    main()
