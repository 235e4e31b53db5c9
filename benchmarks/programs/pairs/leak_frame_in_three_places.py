"""A frame is kept in two lists and a table of its player."""

SOURCE = "pattern; no one thread"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["tensor-kept"],
    "grows": "Frame",
    "holder": "player.",
    "holders_ok": ["shown", "by_number", "recent"],
    "bytes_per_run": 16600,
    "count_per_run": 1,
    "fix": "keep the newest frame only",
}
SETUP = """
import torch

class Frame:
    def __init__(self):
        self.pixels = torch.zeros(4000)

class Player:
    def __init__(self):
        self.shown = []
        self.by_number = {}
        self.recent = []

    def show(self, number):
        frame = Frame()
        self.shown.append(frame)
        self.by_number[number] = frame
        self.recent.append(frame)
        return float(frame.pixels.sum())

player, number = Player(), 0
"""
CELL = """
number += 1
total = player.show(number)
"""
FIXED_SETUP = """
import torch

class Frame:
    def __init__(self):
        self.pixels = torch.zeros(4000)

class Player:
    def __init__(self):
        self.shown = []
        self.by_number = {}
        self.recent = []

    def show(self, number):
        frame = Frame()
        self.shown[:] = [frame]
        self.by_number = {number: frame}
        self.recent[:] = [frame]
        return float(frame.pixels.sum())

player, number = Player(), 0
"""
FIXED_CELL = """
number += 1
total = player.show(number)
"""
