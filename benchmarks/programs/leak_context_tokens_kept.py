"""The token of each ContextVar.set() is kept for a reset that never comes; a token refers to the value before."""

SOURCE = "langgenius/dify#35773"
TRUTH = {
    "leaks": True,
    "cause": "container-growth",
    "causes_ok": ["global-cache", "tensor-kept"],
    "grows": "Token",
    "holder": "tokens",
    "bytes_per_run": 20200,
    "count_per_run": 1,
    "fix": "reset with the token at the end of the request",
}
SETUP = """
import contextvars, itertools
request = contextvars.ContextVar('request', default=None)
numbers = itertools.count()
tokens = []

class Request:
    def __init__(self, number):
        self.number = number
        self.body = bytes(20_000)

def handle(reset):
    tokens.append(request.set(Request(next(numbers))))
    size = len(request.get().body)
    if reset:
        request.reset(tokens.pop())
    return size
"""
CELL = """
size = handle(reset=False)
"""
FIXED_CELL = """
size = handle(reset=True)
"""
