"""A wrapper records frames until the episode ends, but the environment was made without a time limit: it never ends."""

SOURCE = "Farama-Foundation/Gymnasium#1377"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["tensor-kept"],
    "grows": "numpy.ndarray",
    "holder": "recorded_frames",
    "bytes_per_run": 37700,
    "count_per_run": 4,
    "fix": "a time limit around the environment, or a limit on the length of a clip",
}
SETUP = """
import collections, numpy as np
rng = np.random.default_rng(0)

class Walk:
    def reset(self):
        self.state = np.zeros(4)
        return self.state

    def step(self, action):
        self.state = self.state * 0.9 + rng.normal(size=4) * action
        return self.state, float(-np.abs(self.state).sum()), False

    def render(self):
        return np.full((48, 64, 3), int(abs(self.state[0]) * 10) % 255, dtype=np.uint8)

class TimeLimit:
    def __init__(self, env, steps):
        self.env, self.steps, self.left = env, steps, steps

    def reset(self):
        self.left = self.steps
        return self.env.reset()

    def step(self, action):
        state, reward, done = self.env.step(action)
        self.left -= 1
        return state, reward, done or self.left <= 0

    def render(self):
        return self.env.render()

class RecordVideo:
    def __init__(self, env):
        self.env, self.recorded_frames, self.clips = env, [], 0
        self.lengths = collections.deque(maxlen=10)

    def reset(self):
        if self.recorded_frames:
            self.clips += 1
            self.lengths.append(len(self.recorded_frames))
        self.recorded_frames = []
        return self.env.reset()

    def step(self, action):
        state, reward, done = self.env.step(action)
        self.recorded_frames.append(self.env.render())
        return state, reward, done

env = RecordVideo(Walk())
env.reset()
"""
CELL = """
for _ in range(4):
    state, reward, done = env.step(1.0)
    if done:
        env.reset()
"""
FIXED_SETUP = SETUP.replace("env = RecordVideo(Walk())", "env = RecordVideo(TimeLimit(Walk(), 20))")
FIXED_CELL = CELL
