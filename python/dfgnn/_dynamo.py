"""Functions that run by what is made of their graphs, which torch.compile's
Dynamo finds and whose guards say when one holds.

Dynamo takes what classes have for constants, so that we look at classes here.
"""

import dis
import functools
import logging
import os
import random
import threading
import traceback
import types
import warnings
from operator import is_

import torch

from ._fx import line_of
from ._modes import untraced
from ._names import outside_of
from ._trace import TraceError
from ._trace_errors import is_users

try:
    import torch._dynamo
    from torch._dynamo import config
    from torch._dynamo.exc import (
        BackendCompilerFailed, FailOnRecompileLimitHit, TorchDynamoException)
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch.fx.experimental import _config as shapes
    AVAILABLE = hasattr(config, "recompile_limit")
    if AVAILABLE and not torch.cuda.device_count():
        # a guard that lives as long as the thread that traces first, and which
        # others read after that
        torch._C._ensureCUDADeviceGuardSet()
except ImportError:
    AVAILABLE = False

# graphs of one function: kinds of layers of a class, types, modes
MOST_GRAPHS = 64
_OPTIONS = {"recompile_limit": MOST_GRAPHS, "fail_on_recompile_limit_hit": True,
            "capture_scalar_outputs": True, "specialize_float": False,
            "automatic_dynamic_shapes": True, "assume_static_by_default": True,
            "use_numpy_random_stream": True,
            "skip_nnmodule_hook_guards": False,
            # versions of dicts know nothing of an object's class
            "use_recursive_dict_tags_for_guards": False,
            "suppress_errors": False, "error_on_recompile": False}
_thread = threading.local()  # .making: what is made of the next graph


def _is_wanted(record):
    # a graph that is made while torch makes one ends the events of both
    return not getattr(_thread, "quiet", False) and \
        "Start event not in stack" not in record.getMessage()


for _name in ("_dynamo.convert_frame", "_dynamo.utils", "_dynamo.eval_frame",
              "_subclasses.fake_tensor"):
    # what it says of our graphs is told as reasons
    logging.getLogger("torch." + _name).addFilter(_is_wanted)


class _Later(Exception):
    """A graph is wanted in a call that does not make one."""


class _Taken(Exception):
    """A graph was looked at, and is not to run."""

    def __init__(self, result):
        super().__init__("a graph was looked at")
        self.result = result


def _backend(module, inputs):
    making = getattr(_thread, "making", None)
    if making is None:
        raise _Later
    _check_code()
    if any(node.target is torch._assert_async for node in module.graph.nodes):
        raise TraceError("assert asks what a tensor holds")
    return making(module)


class _Deletes(Exception):
    """A graph deletes attributes of its layer."""

    def __init__(self, names):
        super().__init__("attributes are deleted")
        self.names = names


def _check_code():
    """Raises TraceError for code that Dynamo follows wrongly.  Dynamo has no
    guard on a missing attribute, nor on what __dict__ holds.  It deletes an
    attribute that was set before once more: _Deletes names those of a layer,
    which have to be there when it looks."""
    calls = getattr(getattr(InstructionTranslator.current_tx(), "output", None),
                    "random_calls", ())
    if any(getattr(draw, "__self__", None) is not random._inst
           for draw, *_ in calls):
        raise TraceError("random numbers are those of a random.Random, of which "
                         "torch.compile draws the first again")
    context = torch._guards.TracingContext.try_get()
    methods, known = getattr(_thread, "deletes", None) or ((), ())
    codes = [c for c in getattr(context, "previously_inlined_functions", ())
             if c.co_filename.startswith("<") or is_users(c.co_filename)]
    asks = any(_ASKS.intersection(c.co_names) for c in codes)
    names = set()
    for code in codes:
        if _is_unguarded(code):
            raise TraceError(f"{code.co_filename}, in {code.co_name}: what it "
                             "does not find is on no guard of torch.compile's")
        for of_self, name in _deleted(code):
            if asks or not of_self or code not in methods:
                raise TraceError(f"{code.co_filename}, in {code.co_name}: "
                                 f"{name} is deleted")
            names.add(name)
    if not names <= set(known):
        raise _Deletes(names)


_PYTHON = os.path.dirname(os.__file__) + os.sep
_ASKS = {"hasattr", "getattr", "__dict__", "vars"}


@functools.lru_cache(4096)
def _is_unguarded(code):
    """Whether code looks into __dict__, says what is had for an attribute that
    is not there, or handles exceptions."""
    if code.co_filename.startswith(_PYTHON) and \
            "site-packages" not in code.co_filename:
        return False  # Python's own
    if {"__dict__", "vars", "suppress"}.intersection(code.co_names) or \
            code.co_name in ("__getattr__", "__getattribute__"):
        return True
    steps = [step.opname for step in dis.get_instructions(code)]
    return "SETUP_FINALLY" in steps or any(
        step == "PUSH_EXC_INFO" and after != "WITH_EXCEPT_START"
        for step, after in zip(steps, steps[1:]))


@functools.lru_cache(4096)
def _deleted(code):
    """[(of_self, name)] of attributes that code deletes; of_self: self's."""
    steps = list(dis.get_instructions(code))
    deletions = [(False, name) for name in ("delattr", "__delattr__")
                 if name in code.co_names]
    return deletions + [
        (before.opname.startswith("LOAD_FAST")
         and before.argval == code.co_varnames[0], step.argval)
        for before, step in zip(steps, steps[1:])
        if step.opname == "DELETE_ATTR"]


_SET_LATER = object()


class Function:
    """A function of which graphs are made; make(module): what runs in the place
    of a graph."""

    def __init__(self, function, make):
        self.function, self.make = function, make
        self.classes, self.run = [], None
        self.there = False  # whether there may be graphs
        self.deleted = ()  # attributes that graphs set and delete

    def __call__(self, about, *args):
        """The result; TraceError if no graph can be made.  about: what has the
        classes whose attributes the function reads."""
        if not self.deleted:
            return self._call(about, *args)
        added = [name for name in self.deleted if name not in vars(about)]
        vars(about).update(dict.fromkeys(added, _SET_LATER))
        try:
            return self._call(about, *args)
        finally:
            for name in added:
                if vars(about).get(name) is _SET_LATER:
                    del vars(about)[name]

    def _call(self, about, *args):
        if self.run is None or not all(
                len(now) == len(values) and all(map(is_, now.values(), values))
                for now, values in self.classes):
            self._renew()
        else:
            code = self._known(args)
            if code is not None:
                return code(*args)
        if self.there:
            _thread.quiet = True
            try:
                return _run(self.run, *args)
            except BackendCompilerFailed as error:
                if type(error.inner_exception) is not _Later:
                    raise
            except Exception as error:
                if not _is_dynamos(error):
                    raise  # others are raised again
            finally:
                _thread.quiet = False
        if any(t.is_cuda for t in _tensors(args)) and \
                torch.cuda.is_current_stream_capturing():
            raise TraceError("a CUDA graph is captured by its first call")
        self.classes += [(vars(kind), tuple(vars(kind).values()))
                         for kind in _classes(about) if all(
                             vars(kind) != other for other, _ in self.classes)]
        _thread.deletes = {
            value.__code__ for one in type(about).__mro__
            for value in vars(one).values()
            if isinstance(value, types.FunctionType)}, self.deleted
        try:
            result = _compiled(self.run, self.make, args,
                               specialize_float=not self.there)
        except _Deletes as deletes:
            self.deleted = (*self.deleted, *deletes.names)
            return self(about, *args)
        finally:
            _thread.deletes = None
        self.there = True
        self.known = _entries(self.fresh)
        return result

    def _known(self, args):
        """The function that Dynamo has compiled for such a call, or None:
        Dynamo's own lookup costs as much as a small layer."""
        if not self.known:
            return None
        scope = dict(zip(self.names, args), **self.cells)
        for guards, run in self.known:
            if guards.check(scope):
                return run
        return None

    def _renew(self):
        self.fresh = _copy(self.function)
        code = self.fresh.__code__
        self.names = code.co_varnames[:code.co_argcount]
        self.cells = {name: cell.cell_contents for name, cell in zip(
            code.co_freevars, self.fresh.__closure__ or ())}
        self.classes, self.known, self.there = [], [], False
        self.run = torch.compile(self.fresh, backend=_backend, dynamic=True,
                                 fullgraph=True)


def _copy(function):
    """The function with code of its own, by which Dynamo keeps graphs."""
    return types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__,
        function.__defaults__, function.__closure__)


class _Utils:
    """The functions of torch._dynamo.utils that Dynamo's code calls, without
    what keeps it from tracing that: nothing is traced."""

    @staticmethod
    def call_size(x, i):
        return x.size(i)

    @staticmethod
    def record_pregraph_bytecode_enter():
        return None

    @staticmethod
    def record_pregraph_bytecode_exit(_):
        return None

    def __getattr__(self, name):
        return getattr(torch._dynamo.utils, name)


def _entries(function):
    """[(guards, code as a function)] of Dynamo's cache for a function; empty
    where torch does not show it."""
    try:
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list
        entries = []
        for entry in _debug_get_cache_entry_list(function.__code__):
            names = {}
            for name in entry.code.co_names:
                if name.startswith("__compiled_fn"):
                    names[name] = function.__globals__[
                        name]._torchdynamo_orig_callable
                elif name == "__import_torch_dot__dynamo_dot_utils":
                    names[name] = _Utils()
            entry.guard_manager.check  # noqa: B018
            entries.append((entry.guard_manager, types.FunctionType(
                entry.code, {**function.__globals__, **names},
                function.__name__, None, function.__closure__)))
        return entries
    except (ImportError, AttributeError, KeyError, TypeError):
        return []


@untraced
def _run(run, *args):
    """run(*args), whatever stance torch.compile is to take to the user's
    graphs."""
    stance = getattr(torch._dynamo.eval_frame, "_stance", None)
    if stance is not None and stance == type(stance)():
        return run(*args)  # to set one takes 10 us
    with torch.compiler.set_stance("default"):
        return run(*args)


def look(function, make, *args):
    """The result of make(module) for the graph of a call that does not run."""
    def stop(module):
        raise _Taken(make(module))
    run = torch.compile(_copy(function), backend=_backend, dynamic=True,
                        fullgraph=True)
    try:
        _compiled(run, stop, args)
    except BackendCompilerFailed as error:
        inner = error.inner_exception
        if isinstance(inner, _Taken):
            return inner.result
        raise TraceError(str(inner)) from None
    raise TraceError("torch.compile is turned off")


def _compiled(run, make, args, **options):
    """A call that makes a graph; it may run another that is there."""
    before, _thread.making = getattr(_thread, "making", None), make
    _thread.quiet = True
    try:
        with warnings.catch_warnings(), config.patch({k: v for k, v in
                           {**_OPTIONS, **options}.items()
                           if hasattr(config, k)}), \
                shapes.patch(use_duck_shape=False):
            warnings.filterwarnings("ignore", module=r"torch\._dynamo")
            return _run(run, *args)
    except BackendCompilerFailed as error:
        if isinstance(error.inner_exception, TraceError):
            raise TraceError(str(error.inner_exception)) from None
        if isinstance(error.inner_exception, _Deletes):
            raise error.inner_exception from None
        raise
    except Exception as error:
        if _is_dynamos(error):
            raise TraceError(_in_words(error)) from None
        raise
    finally:
        _thread.quiet = False
        _thread.making = before


def _is_dynamos(error):
    """Whether Dynamo has failed, and not what it ran.  As it puts the reasons
    for another graph into words it asks for what this call does not have."""
    return isinstance(error, (
        TorchDynamoException, FailOnRecompileLimitHit)) or any(
            frame.f_code.co_name == "get_and_maybe_log_recompilation_reasons"
            for frame, _ in traceback.walk_tb(error.__traceback__))


_PLAIN = {
    "Data-dependent branching": "bool() asks what a tensor holds, on which "
    "Python then depends",
    "Could not extract specialized integer": "a size depends on what a tensor "
    "holds",
    "Could not guard on data-dependent": "a size depends on what a tensor "
    "holds",
    "Hard failure due to fullgraph": "its attributes change with every call",
}


def _in_words(error):
    """An error of Dynamo's as text: the user's line and the reason."""
    stack = getattr(error, "real_stack", None)
    line = line_of("\n".join(f'File "{f.filename}", line {f.lineno}'
                             for f in stack or ()))
    text = str(error).strip()
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    more = next((x for x in lines if x.startswith("Developer debug context:")),
                "").partition(": ")[2]
    reason = lines[0] if lines else type(error).__name__
    for beginning, plain in _PLAIN.items():
        if reason.startswith(beginning):
            reason = plain
            break
    else:
        reason += f" ({more})" if more else ""
    return f"{line}: {reason}" if line else reason


def _tensors(args):
    for x in args:
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, dict):
            yield from _tensors(x.values())


_LIBRARIES = "torch", "numpy", "builtins", "dfgnn", "torch_geometric"


def _is_own(kind):
    """Whether a class is the user's."""
    return (kind.__module__ or "").partition(".")[0] not in _LIBRARIES


def _classes(about):
    """The classes that functions of a module, or of modules inside of it, may
    look at: their own, those of their attributes, those they name."""
    classes, functions = {}, {}
    for module in about.modules() if isinstance(
            about, torch.nn.Module) else ():
        _add(type(module), classes, functions, module is about)
        for value in vars(module).values():
            for one in value if isinstance(value, (list, tuple)) else (
                    value.values() if type(value) is dict else (value,)):
                _add(type(one), classes, functions)
    waiting = list(functions.values())
    while waiting:
        function = waiting.pop()
        for one in outside_of(function):
            new = {}
            if isinstance(one, type):
                _add(one, classes, new)
            elif isinstance(one, types.FunctionType) and _is_own(one):
                new = {id(one): one}
            elif not isinstance(one, types.ModuleType):
                _add(type(one), classes, new)
            waiting += [f for k, f in new.items() if k not in functions]
            functions.update(new)
    return list(classes)


def _add(kind, classes, functions, whole=False):
    for one in kind.__mro__:
        if one in classes or one in (torch.nn.Module, object) or \
                one.__name__ == "MessagePassing" or not (
                    whole or _is_own(one)):
            continue
        classes[one] = None
        for value in vars(one).values():
            value = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(value, types.FunctionType):
                functions[id(value)] = value
