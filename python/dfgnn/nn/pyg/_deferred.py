"""Which calls of edge_updater() the propagate() after them may make: those whose
result this propagate() alone reads, as the text of a forward() says.  Attention
whose scores are made by the one and whose sums by the other is one program
then."""

import ast
import dis
import functools
import inspect
import re
import textwrap
from typing import NamedTuple

_ARGS = r"((?:, \w+=(?:\w+|\((?:\w+,? ?)*\)))*)\)$"  # variables by name
# a = self.edge_updater(edges, ...), and then self.propagate(edges, ...)
_PAIR = re.compile(r"^( *)(\w+) = (\w+)\.edge_updater\((\w+)" + _ARGS
                   + r"\n\1(?:\w+ = |return )\3\.propagate\(\4" + _ARGS, re.M)
# ifs that an argument of None does not pass; the first stops False, too
_TEST = re.compile(r"( *)if (?:(\w+)|isinstance\((\w+), \w+\)|"
                   r"(\w+) is not None):$")
# reads may hide in functions and words, and come before their lines in loops
_UNCLEAR = re.compile(
    r"^ *(for|while|try|def|class|global|nonlocal|async|@)\b|:=|"
    r"\b(lambda|yield|await|locals|vars|dir|eval|exec)\b| for [\w, ()]+ in ", re.M)


class Later(NamedTuple):
    """The arguments of an edge_updater() that propagate() calls."""
    edge_index: object
    size: tuple | None
    kwargs: dict


def is_deferred(frame):
    """Whether the function of a frame, which calls edge_updater(), gives the
    result to propagate() in its next statement, and reads it nowhere else in
    this call."""
    unread = _unread(frame.f_code)
    if not unread:
        return unread is not None
    values = frame.f_locals
    return all(values[name] is None or may_be_false and values[name] is False
               for name, may_be_false in unread)


@functools.lru_cache(4096)
def _unread(code):
    """{(argument, whether False will do)} that have to be None for the result
    to be read once; None if the text does not tell."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):
        return None
    codes = [c for c in compile(tree, "", "exec").co_consts
             if inspect.iscode(c)]
    if len(codes) != 1 or _operands(codes[0]) != _operands(code):
        return None  # the file has changed
    text = ast.unparse(ast.Module(tree.body[0].body, []))
    pairs = list(_PAIR.finditer(text))
    if len(pairs) != 1 or _UNCLEAR.search(text) or \
            text.count("edge_updater") > 1:
        return None
    _, name, _, edges, _, call = pairs[0].groups()
    if name == edges or len(re.findall(rf"\b{name}\b", call.replace(
            f", {name}=", ", "))) != 1 or not re.search(
                rf"={name}\b", call):
        return None
    written = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)
               and not isinstance(n.ctx, ast.Load)}
    arguments = {*code.co_varnames[:code.co_argcount
                                   + code.co_kwonlyargcount]} - written
    return _conditions(text[pairs[0].end():], name, arguments)


def _operands(code):
    """The names that steps of code read and write, and their jumps; how they
    call depends on the text around."""
    return [step.opname if "JUMP" in step.opname else step.argval
            for step in dis.get_instructions(code)
            if step.opname.startswith(("LOAD", "STORE", "POP_JUMP", "IS_OP"))]


def _conditions(text, name, arguments):
    """The conditions of _unread() for the reads of a name in text."""
    around, conditions = [], set()  # the ifs about a line: (indent, condition)
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        around = [(begin, about) for begin, about in around if begin < indent]
        if re.search(rf"\b{name}\b", line):
            if not around:
                return None
            conditions.add(around[0][1])
        test = _TEST.match(line)
        if test:
            about = next(filter(None, test.groups()[1:]))
            if about in arguments:
                around.append((indent, (about, test[2] is not None)))
    return conditions
