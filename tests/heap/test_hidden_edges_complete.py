"""Every kind of reference that the collector hides is followed, and named: all holders in one heap, read once."""

from __future__ import annotations

import pytest
from edge_builders import EDGES, Token
from explain_builders import real_view_of


@pytest.fixture(scope="module")
def paths():
    """The path to the token of every builder, as text; empty where no root reaches it."""
    tokens, edges = {}, {}
    for build in EDGES:
        token = Token()
        tokens[build] = id(token)
        edges[build] = build(token)
        del token
    names = {f"holder_{build.__name__}": edge.holder for build, edge in edges.items() if edge.holder is not None}
    try:
        with real_view_of(names) as view:
            found = {}
            for build, address in tokens.items():
                vertex = view.index.vertex_of(address)
                found[build] = str(view.describe(vertex).path) if vertex >= 0 and view.is_reached(vertex) else ""
        yield found
    finally:
        for edge in edges.values():
            for release in edge.release:
                release()


@pytest.mark.parametrize("build", EDGES, ids=lambda build: build.__name__)
def test_a_hidden_reference_is_followed_and_named(paths, build):
    assert paths[build]
    assert all(words in paths[build] for words in EDGES[build]), paths[build]
