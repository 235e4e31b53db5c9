"""A graph of what was asked gains a node and an edge per question: three dictionaries of one object grow together."""

SOURCE = "none: a pattern that is reported often"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache"],
    "grows": "dict",
    "holder": "graph",
    "holders_ok": ["_adj", "_node"],
    "bytes_per_run": 560,
    "count_per_run": 3,
    "fix": "remove old nodes",
}
SETUP = """
import itertools, networkx as nx
graph = nx.Graph()
graph.add_node('root')
questions = itertools.count(1)
"""
CELL = """
node = 'question-%06d' % next(questions)
graph.add_node(node, weight=1.0)
graph.add_edge('root', node)
degree = graph.degree('root')
"""
FIXED_CELL = """
node = 'question-%06d' % next(questions)
graph.add_node(node, weight=1.0)
graph.add_edge('root', node)
degree = graph.degree('root')
graph.remove_node(node)
"""
