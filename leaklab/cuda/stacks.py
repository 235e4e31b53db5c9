"""Name call stacks, and say when two of them are the same."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from leaklab.model.cuda import CPP, CallFrame, LiveStack, StackKey
from leaklab.model.stacks import FrameNode, frame_tree

_NOT_PROJECT = re.compile(
    r"/(?:site|dist)-packages/"
    r"|/lib(?:64)?/python\d[\d.]*t?/"  # the standard library
    r"|/(?:python[\d.]*|[^/]*conda\d?|envs/[^/]+)/lib/"  # the same on Windows
    r"|/torch/(?:nn|optim|autograd|utils|distributed|cuda|amp|fx|jit|functional|_[a-z])"  # torch built in place
    r"|torchinductor_|<frozen |<eval_with_key>|<__array_function__",
    re.IGNORECASE,
)
_CELL = re.compile(r"/ipykernel_\d+/[^/]*$|^<ipython-input-[^>]*>$|^<tokenize>$", re.IGNORECASE)
_SCRIPTED = (".py", ".pyx", ".ipynb")
_AUTOGRAD_NODE = re.compile(r"(?:Backward\d*|AccumulateGrad)::apply\(")
_EVERY_ALLOCATION = re.compile(r"unwind|CapturedTraceback|gather_with_cpp|CachingAllocator|^at::detail::|empty|^c10::")
_ARGUMENTS = re.compile(r"\((?!anonymous).*", re.DOTALL)
_LABEL_FRAMES = 2
_MOST_TWINS, _TWIN_FRAMES = 500, 200  # a file may come from anywhere
_NAME_LIMIT = 80
MAX_FRAMES = 4096
"""Frames read of one stack: the interpreter's own limit is 1,000 calls."""


@functools.lru_cache(maxsize=4096)
def is_python(filename: str) -> bool:
    """Return whether a frame of *filename* is Python code; C++ frames have ``??`` or a C++ file."""
    return filename.endswith(_SCRIPTED) or (filename[:1] == "<" and filename[-1:] == ">")


@functools.lru_cache(maxsize=4096)  # a pure function, asked for every frame of every stack: 1 us, 0.1 us when known
def is_project(filename: str) -> bool:
    """Return whether *filename* is the user's own Python code: no installed package, no standard library."""
    return is_python(filename) and _NOT_PROJECT.search(filename.replace("\\", "/")) is None


@functools.lru_cache(maxsize=4096)
def base_name(filename: str) -> str:
    """Return the name of a file without its folders; ``cell`` for a notebook's, whose name changes with every edit."""
    path = filename.replace("\\", "/")
    return "cell" if _CELL.search(path) else path.rsplit("/", 1)[-1]


def significant_frames(frames: Sequence[CallFrame]) -> list[CallFrame]:
    """Return the project's frames, or else those of Python libraries, or else all."""
    for rule in (is_project, is_python):
        found = [frame for frame in frames if rule(frame.filename)]
        if found:
            return found
    return list(frames)


def frame_words(frame: CallFrame) -> str:
    """Return ``train.py:12 step``; for C++ the function alone."""
    if not is_python(frame.filename):
        return _cut(_ARGUMENTS.sub("", frame.name)) or "unnamed function"
    name = _cut(frame.name)
    return f"{base_name(frame.filename)}:{frame.line} {name}"


def _cut(name: str) -> str:
    return name if len(name) <= _NAME_LIMIT else f"{name[: _NAME_LIMIT - 3]}..."


def label_of(frames: Sequence[CallFrame]) -> str:
    """Return a stack in one line: ``model.py:8 forward <- train.py:12 step``."""
    significant = significant_frames(frames)
    if significant and not is_python(significant[0].filename):
        significant = _significant_functions(significant)
    return " <- ".join(map(frame_words, significant[:_LABEL_FRAMES]))


def labels_of(stacks: Iterable[tuple[CallFrame, ...]]) -> dict[tuple[CallFrame, ...], str]:
    """Return a label for each of *stacks*, as `label_of`; those that would read alike also say where they differ.

    Named is the one place, counted from the inside, at which most of them differ.
    """
    labels = {frames: label_of(frames) for frames in stacks}
    alike: dict[str, list[tuple[CallFrame, ...]]] = {}
    for frames, label in labels.items():
        alike.setdefault(label, []).append(frames)
    for label, twins in alike.items():
        if 1 < len(twins) <= _MOST_TWINS:
            labels.update(zip(twins, _distinguished(label, twins), strict=True))
    return labels


def _distinguished(label: str, twins: Sequence[tuple[CallFrame, ...]]) -> Iterator[str]:
    form = "{} <- ... <- {}"
    paths = [tuple(map(frame_words, significant_frames(frames)[:_TWIN_FRAMES])) for frames in twins]
    if len(set(paths)) < len(paths):  # what differs is what the last line called: a library, or C++
        form = "{} (in {})"
        paths = [tuple(map(frame_words, frames[:_TWIN_FRAMES])) for frames in twins]
    columns = list(itertools.zip_longest(*paths, fillvalue=""))
    best = max(columns, key=lambda words: len(set(words)))
    for word in best:
        yield form.format(label, word) if word else label


def _significant_functions(frames: list[CallFrame]) -> list[CallFrame]:
    """Return C++ frames from the autograd node on, or without those that every allocation has."""
    nodes = [frame for frame in frames if _AUTOGRAD_NODE.search(frame.name)]
    return nodes[:1] or [frame for frame in frames if not _EVERY_ALLOCATION.search(frame.name)] or frames


def key_of(frames: tuple[CallFrame, ...], key: StackKey) -> Hashable:
    """Return what two stacks must have in common to be the same by *key*."""
    if key is StackKey.EXACT:
        return frames
    # Of C++ frames only the function: their file and line are unknown.
    return tuple((base_name(frame.filename), frame.name) for frame in significant_frames(frames))


UNREADABLE = CallFrame("unreadable frame", "", 0)


class StackTable:
    """Turns the frames that a file shares among its blocks and events into stacks, each only once.

    Keyed by the address of the list: the file's own lists must be alive meanwhile.

    Attributes:
        n_unreadable: Frames met that are none; `UNREADABLE` stands in their place.
    """

    def __init__(self) -> None:
        self.n_unreadable = 0
        self._stacks: dict[int, tuple[CallFrame, ...]] = {}
        self._frames: dict[int, CallFrame] = {}
        self._known: dict[tuple[CallFrame, ...], tuple[CallFrame, ...]] = {}

    def stack(self, frames: Sequence[object]) -> tuple[CallFrame, ...]:
        """Return *frames* as a stack, innermost first; equal ones are the same object."""
        found = self._stacks.get(id(frames))
        if found is None:
            stack = tuple(self._each(frames[:MAX_FRAMES]))
            found = self._stacks[id(frames)] = self._known.setdefault(stack, stack)
        return found

    def _each(self, frames: Iterable[object]) -> Iterable[CallFrame]:
        known = self._frames
        for frame in frames:
            yield known.get(id(frame)) or known.setdefault(id(frame), self._frame(frame))

    def _frame(self, frame: object) -> CallFrame:
        entries: Mapping[str, object] = frame if type(frame) is dict else {"name": None}
        name, filename, line = entries.get("name", ""), entries.get("filename", ""), entries.get("line", 0)
        if type(name) is not str or type(filename) is not str or type(line) is not int:
            self.n_unreadable += 1
            return UNREADABLE
        return CallFrame(name, filename, line)


MAX_DEPTH = 60
"""Deeper frames are put down to the last one that is shown."""


def tree_of(stacks: Iterable[LiveStack], label: str = "all live blocks") -> FrameNode:
    """Return the tree: devices first, then the outermost frames. Stacks without frames are leaves of their own."""
    return frame_tree(
        (((stack.device, *_labels(stack)), stack.active_bytes, stack.n_blocks) for stack in stacks), label
    )


def _labels(stack: LiveStack) -> list[str]:
    """Return the Python frames, outermost first; C++ frames lie below every one of them and say little."""
    if not stack.frames:
        return [stack.label]
    frames: list[CallFrame] = [frame for frame in stack.frames if is_python(frame.filename)]
    if not frames:
        return [CPP, label_of(stack.frames)]
    return [frame_words(frame) for frame in reversed(frames)][:MAX_DEPTH]
