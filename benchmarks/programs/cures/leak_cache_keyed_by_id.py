"""Compiled plans are cached by the id of a graph that dies."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "global-cache",
    "causes_ok": ["container-growth", "tensor-kept"],
    "grows": "Plan",
    "holder": "plans",
    "bytes_per_run": 8417,
    "count_per_run": 1,
    "fix": "the entry goes with its graph",
}
SETUP = """
import torch

class Plan:
    def __init__(self, graph):
        self.graph, self.buffer = graph, torch.zeros(2000)

class Graph:
    def __init__(self, n):
        self.n = n

class Engine:
    plans = {}

    def plan(self, graph):
        if id(graph) not in self.plans:
            self.plans[id(graph)] = Plan(graph)
        return self.plans[id(graph)]

engine = Engine()
"""
CELL = """
graph = Graph(3)
plan = engine.plan(graph)
plan.buffer[0] = plan.graph.n
"""
FIXED_CELL = """
graph = Graph(3)
plan = engine.plan(graph)
plan.buffer[0] = plan.graph.n
del Engine.plans[id(graph)]
"""
