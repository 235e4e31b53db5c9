"""Touch a live object safely: its type, its name, a short summary.

Nothing here calls a method that the object's class could have written. ``type(o)`` is asked instead of ``o.__class__``,
types are compared by identity along their ``__mro__``, and lengths are read only through built-in types' own C code: an
object that raises, hangs or lies in ``__repr__``, ``__len__``, ``__eq__`` or ``__getattr__`` is never given the chance.

torch is looked up, never imported: without it no object is a tensor.
"""

from __future__ import annotations

import array
import collections
import functools
import io
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

_type_module = type.__dict__["__module__"].__get__
_type_qualname = type.__dict__["__qualname__"].__get__
_type_mro = type.__dict__["__mro__"].__get__
_is_subclass: Callable[[type, type], bool] = type.__subclasscheck__

module_dict: Callable[[object], dict[str, Any] | None] = vars(types.ModuleType)["__dict__"].__get__
"""The variables of a module, read without running code of a subclass; None before the module was initialized."""
class_dict: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
"""The attributes of one class, read without asking its metaclass."""
flags_of: Callable[[type], int] = type.__dict__["__flags__"].__get__
"""The ``__flags__`` of a type, read without asking its metaclass."""
HEAP_TYPE = 1 << 9
"""The flag of a type that was made at run time, as every class statement does."""
MANAGED_DICT = 1 << 4
"""The flag of a type whose instances have a dict that the interpreter manages; from Python 3.11 on, no flag before."""

TYPE_SUBCLASS = 1 << 31
"""The flag of a metaclass, whose instances are classes."""

LRU_CACHE: Any = type(functools.lru_cache(lambda: None))
"""Of what `functools.lru_cache` and `functools.cache` return."""
SIZED_BASES: tuple[type, ...] = (
    list, dict, set, frozenset, tuple, collections.deque, bytes, bytearray, str, array.array,
)  # fmt: skip
"""Types whose own ``__len__`` is C code; a subclass is measured by its base's, never by its own."""

_LEN_OF: Mapping[int, Callable[[Any], int]] = {id(base): vars(base)["__len__"] for base in SIZED_BASES}
_UNITS: Mapping[type, tuple[str, str]] = {
    str: ("character", "characters"),
    bytes: ("byte", "bytes"),
    bytearray: ("byte", "bytes"),
}


_NOTHING: Mapping[str, Any] = {}


def mro_of(kind: type) -> tuple[type, ...]:
    """Return the ``__mro__`` of *kind* without asking its metaclass."""
    mro: tuple[type, ...] = _type_mro(kind)
    return mro


def has_base(kind: type, base: type) -> bool:
    """``issubclass`` along the real ``__mro__``: no ``__subclasscheck__``, no ``__eq__`` of a metaclass.

    Between two types the method of `type` itself compares by identity, in C: six times faster than a loop here.
    """
    return _is_subclass(base, kind)


def is_kind_of(thing: object, kind: type) -> bool:
    """``isinstance`` that looks at the real type only."""
    return has_base(type(thing), kind)


def attributes_of(thing: object) -> dict[str, Any]:
    """Return the dict of an instance, an empty one if it has none; one is made where nobody has asked for it yet.

    Of a `threading.local` that is what the thread has that asks.
    """
    try:
        own = type(thing) if type(thing) is threading.local else object
        attributes = own.__getattribute__(thing, "__dict__")
    except AttributeError:
        return {}
    return attributes if type(attributes) is dict else {}


def class_attribute(kind: type, name: str, default: object = None) -> Any:
    """Return what the classes of *kind* have under *name*, as it stands in their dicts: no descriptor is asked."""
    return next((found[name] for found in map(class_dict, mro_of(kind)) if name in found), default)


def static_attribute(owner: object, name: str, default: object = None) -> Any:
    """Return what *owner* or its classes have under *name*, as it stands in their dicts.

    `inspect.getattr_static` does the same, but asks a metaclass on its way, which may be the user's.
    """
    kind = type(owner)
    of_kind = class_attribute(kind, name, default)
    if of_kind is not default and class_attribute(type(of_kind), "__set__") is not None:
        return of_kind
    if has_base(kind, type):
        return class_attribute(owner, name, of_kind)  # type: ignore[arg-type]  # a class
    own = module_dict(owner) if has_base(kind, types.ModuleType) else attributes_of(owner)
    return of_kind if own is None else dict.get(own, name, of_kind)


def inline_attributes(thing: object) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an instance that functions of its class mention, and make no dict for it.

    CPython 3.11 and 3.12 keep attributes in an array without names until somebody reads ``__dict__``; from then on the
    instance carries a dict for good, and is larger. To try names one by one leaves no trace. What only code outside of
    the class calls by name is not found.
    """
    kinds = mro_of(type(thing))
    functions = (f for kind in kinds for f in list(class_dict(kind).values()) if type(f) is types.FunctionType)
    for name in sorted({name for function in functions for name in function.__code__.co_names}):
        value = inline_attribute(thing, name)
        if value is not None:
            yield name, value


def inline_attribute(thing: object, name: str) -> Any:
    """Return the attribute *name* of an instance without making a dict for it; None if its class has one too."""
    if class_attribute(type(thing), name, _NOTHING) is not _NOTHING:
        return None  # a descriptor could run the user's code
    try:
        return object.__getattribute__(thing, name)
    except AttributeError:
        return None


def is_exactly(thing: object, kinds: Iterable[type]) -> bool:
    """Return whether the type of *thing* is one of *kinds*; ``in`` would ask a metaclass's ``__eq__``."""
    return any(type(thing) is kind for kind in kinds)


def loaded_variables(module: str) -> Mapping[str, Any]:
    """Return the variables of *module* if it is loaded, none otherwise.

    Not its attributes: whoever loads modules late has put something into ``sys.modules`` that imports the module, or
    runs any other code, when one is asked for.
    """
    found = sys.modules.get(module)
    if type(found) is types.ModuleType or is_kind_of(found, types.ModuleType):
        return module_dict(found) or _NOTHING
    return _NOTHING


def running_shell() -> Any:
    """Return the IPython shell that runs here, None without one; IPython is looked up, never imported."""
    find = loaded_variables("IPython.core.getipython").get("get_ipython")  # IPython 9 gives it out on demand only
    return None if find is None else find()


def is_script(namespace: dict[str, Any] | None) -> bool:
    """Return whether *namespace* has the variables of this process's program, and that is no notebook."""
    return "__main__" in sys.modules and namespace is module_dict(sys.modules["__main__"]) and running_shell() is None


def loaded_type(module: str, name: str) -> type | None:
    """Return the class *name* of *module* if that module is loaded, else None; imports nothing."""
    home = sys.modules.get(module)
    # Asked for every object of some lists: what nearly all modules are takes the shorter way.
    variables = module_dict(home) if type(home) is types.ModuleType else loaded_variables(module)
    found = None if variables is None else variables.get(name)
    return found if flags_of(type(found)) & TYPE_SUBCLASS else None


def is_tensor_type(kind: type) -> bool:
    """Return whether *kind* is ``torch.Tensor`` or derived from it."""
    tensor_type = loaded_type("torch", "Tensor")
    return tensor_type is not None and has_base(kind, tensor_type)


def is_tensor(thing: object) -> bool:
    """Return whether *thing* is a ``torch.Tensor``, without running its ``__class__``."""
    return is_tensor_type(type(thing))


def type_name(kind: type) -> str:
    """Return the qualified name of *kind*: ``torch.Tensor``, ``list``, ``Trainer`` for a class of the notebook."""
    try:
        module, qualname = _type_module(kind), _type_qualname(kind)
    except (AttributeError, KeyError, TypeError):
        return "object"
    if type(qualname) is not str:
        return "object"
    qualname = qualname.replace("<locals>.", "")
    if type(module) is not str or module in ("builtins", "__main__"):
        return qualname
    return f"{module}.{qualname}"


def length_function(kind: type) -> Callable[[Any], int] | None:
    """Return the C function that measures objects of *kind*, None if only code of the user could."""
    for base in mro_of(kind):
        measure = _LEN_OF.get(id(base))
        if measure is not None:
            return measure
    return None


def safe_len(thing: object) -> int | None:
    """Return the length of a built-in container (or of a subclass, by its base's rule), None for anything else."""
    measure = length_function(type(thing))
    return None if measure is None else int(measure(thing))


@contextmanager
def no_torch_functions() -> Iterator[None]:
    """Keep ``__torch_function__`` of tensor subclasses out of what happens inside."""
    disabled = loaded_type("torch._C", "DisableTorchFunctionSubclass")  # no public way to keep subclasses silent
    with nullcontext() if disabled is None else disabled():
        yield


def tensor_words(tensor: Any) -> str:
    """Return shape, dtype and device of *tensor* in a few words, ``?`` for what it does not tell."""
    base: Any = loaded_type("torch", "Tensor")
    with no_torch_functions():
        try:
            shape: object = tuple(base.size(tensor))
        except (RuntimeError, TypeError, ValueError):
            shape = "?"
        try:
            dtype = str(base.dtype.__get__(tensor)).removeprefix("torch.")
            device = str(base.device.__get__(tensor))
        except (RuntimeError, TypeError, AttributeError):
            return f"{shape}"
    return f"{shape} {dtype} {device}"


def summary(thing: object) -> str:
    """Say in a few words what *thing* is, without its content: shape of a tensor, length of a container."""
    kind = type(thing)
    if is_tensor(thing):
        return tensor_words(thing)
    if _is_array(kind):
        return array_words(thing)
    length = safe_len(thing)
    if length is not None:
        singular, plural = _UNITS.get(kind, ("entry", "entries"))
        return f"{length:,} {singular if length == 1 else plural}"
    if is_kind_of(thing, type):
        return type_name(thing)  # type: ignore[arg-type]  # the real type was asked, not __class__
    return ""


def array_words(thing: Any) -> str:
    """Return shape and dtype of a numpy array."""
    base: Any = loaded_type("numpy", "ndarray")
    return f"{tuple(base.shape.__get__(thing))} {base.dtype.__get__(thing)}"


def _is_array(kind: type) -> bool:
    base = loaded_type("numpy", "ndarray")
    return base is not None and has_base(kind, base)


STREAM_TYPES: tuple[type, ...] = (io.StringIO, io.BytesIO)
"""In-memory files: their position tells how much was written."""


_SHARED: Final = (int, float, complex, bool, str, type(...), type(NotImplemented))
_EMPTY: Final = (tuple, bytes, frozenset)
_IMMORTAL_COUNT = 1 << 28  # from 3.12 on; no count that was counted comes near


def words_if_shared(thing: Any) -> str:
    """Return what *thing* is if it is a value that all code shares, empty for anything that can be freed."""
    kind = type(thing)
    if thing is None:
        return "None is one object for all code"
    if any(kind is shared for shared in _SHARED):
        return f"a value of type {type_name(kind)} may be shared by all code that uses the same value"
    if any(kind is empty for empty in _EMPTY) and not len(thing):
        return f"the empty {type_name(kind)} is one object for all code"
    if is_kind_of(thing, type) and not flags_of(thing) & HEAP_TYPE:
        return f"the type {type_name(thing)} is built into the interpreter"
    if sys.getrefcount(thing) > _IMMORTAL_COUNT:
        return f"this {type_name(kind)} was made immortal by the interpreter"
    return ""
