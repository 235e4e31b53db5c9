"""More of the small programs: those that can take out again what they put somewhere, and do not."""

from __future__ import annotations

from programs import Leaking

_ROUTER = (
    "import itertools\nclass Router:\n    def __init__(self):\n"
    "        self.numbers, self.table = itertools.count(), {}\n"
    "    def add_handler(self, function):\n        handle = next(self.numbers)\n"
    "        self.table[handle] = (True, function)\n        return handle\n"
    "    def del_handler(self, handle):\n        del self.table[handle]\n"
    "    def dispatch(self):\n        return [function() for _, function in self.table.values()]\nrouter = Router()\n"
)

WAYS_OUT = {
    "a handle that is dropped": Leaking(
        _ROUTER + "def call(pad):\n    router.add_handler(lambda: len(pad))\n    return router.dispatch()[-1]",
        "n = call(bytearray(2000))",
        "router.table", "tensor-kept", "self.table[handle]", "    router.del_handler(handle)",
    ),
    "a client with a method that takes it out": Leaking(
        "class Client:\n    register = {}\n    def __init__(self, pad):\n        self.pad = pad\n"
        "        self.register[id(self)] = self\n    def sign_off(self):\n        self.register.pop(id(self), None)\n"
        "def query(pad):\n    client = Client(pad)\n    return len(client.pad)",
        "n = query(bytearray(2000))",
        "Client.register", "global-cache", "self.register[id(self)]", "    client.sign_off()",
    ),
    "a document whose class has a table": Leaking(
        "import itertools\nnumbers = itertools.count()\nclass Table:\n    entries = {}\n    @classmethod\n"
        "    def enter(cls, thing):\n        key = next(numbers)\n        cls.entries[key] = thing\n"
        "        return key\n"
        "    @classmethod\n    def strike(cls, key):\n        cls.entries.pop(key, None)\n"
        "class Document:\n    def __init__(self, pad):\n        self.pad = pad\n        self.id = Table.enter(self)\n"
        "def log():\n    document = Document(bytearray(2000))\n    return len(document.pad)",
        "n = log()",
        "Table.entries", "global-cache", "cls.entries[key]", "    Table.strike(document.id)",
    ),
    "an entry that is looked up once": Leaking(
        "import itertools\nnumbers = itertools.count()\nclass Provider:\n    def __init__(self):\n"
        "        self.waiting = {}\n"
        "    def ask(self, form):\n        key = next(numbers)\n        self.waiting[key] = form\n"
        "        return key\n"
        "    def answer(self, key):\n        return len(self.waiting[key])\nprovider = Provider()",
        "key = provider.ask(bytearray(2000))\nn = provider.answer(key)",
        "provider.waiting", "container-growth", "self.waiting[key]", "        return len(self.waiting.pop(key))",
    ),
    "a lock by session": Leaking(
        "import itertools, threading\nnumbers = itertools.count()\nclass Session:\n    locks = {}\n"
        "    def __init__(self):\n        self.id, self.pad = next(numbers), bytearray(2000)\n"
        "    def lock(self):\n        self.locks.setdefault(self.id, threading.RLock()).acquire()\n"
        "    def unlock(self):\n        self.locks[self.id].release()\n"
        "def handle():\n    session = Session()\n    session.lock()\n    session.unlock()",
        "handle()",
        "Session.locks", "global-cache", "self.locks.setdefault", "        self.locks.pop(self.id).release()",
    ),
    "a subscription that an error leaves": Leaking(
        "from contextlib import contextmanager, suppress\nclass Bus:\n    def __init__(self):\n"
        "        self.inboxes = {}\n"
        "    @contextmanager\n    def subscribe(self, channel):\n        inbox = [bytearray(2000)]\n"
        "        self.inboxes.setdefault(channel, {})[id(inbox)] = inbox\n        yield inbox\n"
        "        self.inboxes[channel].pop(id(inbox))\nbus = Bus()\ndef serve():\n    with bus.subscribe('room'):\n"
        "        raise ConnectionError",
        "with suppress(ConnectionError):\n    serve()",
        "bus.inboxes['room']", "container-growth", "self.inboxes.setdefault", "        finally:",
    ),
    "a return before the end": Leaking(
        "import itertools\nnumbers, active = itertools.count(), {}\ndef serve(key, pad):\n"
        "    active[key] = {'pad': pad}\n    if len(pad) > 10:\n        return 0\n    state = active.pop(key)\n"
        "    return len(state)",
        "n = serve(next(numbers), bytearray(2000))",
        "active", "global-cache", "active[key] =", "        active.pop(key, None)",
    ),
    "a poller that has an end": Leaking(
        "class Scheduler:\n    running = []\n    def call(self, function):\n        self.running.append(function)\n"
        "scheduler = Scheduler()\nclass Poller:\n    def __init__(self, pad):\n        self.pad = pad\n"
        "        scheduler.call(self.poll)\n"
        "    def poll(self):\n        return len(self.pad)\n    def stop(self):\n"
        "        scheduler.running.remove(self.poll)\n"
        "def first(pad):\n    poller = Poller(pad)\n    return poller.poll()",
        "n = first(bytearray(2000))",
        "Scheduler.running", "callback-registry", "scheduler.call(self.poll)", "    poller.stop()",
    ),
    "an extractor of the user's that is no with": Leaking(
        "import torch\nnet = torch.nn.Linear(32, 4)\nclass Extractor:\n    def __init__(self, net):\n"
        "        self.out = []\n"
        "        self.handles = [net.register_forward_hook(self.keep) for _ in range(2)]\n"
        "    def keep(self, module, given, out):\n        self.out.append(out.detach())\n"
        "    def __enter__(self):\n        return self\n    def __exit__(self, *error):\n"
        "        for handle in self.handles:\n            handle.remove()\n"
        "def score(x):\n    extractor = Extractor(net)\n    net(x)\n    return len(extractor.out)",
        "n = score(torch.ones(2, 32))",
        "net._forward_hooks", "hook-left", "net.register_forward_hook", "    with Extractor(net) as extractor:",
    ),
    "a task of a shared display": Leaking(
        "class Progress:\n    def __init__(self):\n        self.tasks, self.n = {}, 0\n"
        "    def add_task(self, description):\n        self.n += 1\n"
        "        self.tasks[self.n] = description\n        return self.n\n"
        "    def remove_task(self, task_id):\n        del self.tasks[task_id]\nprogress = Progress()\n"
        "def evaluate(pad):\n    bar = progress.add_task(pad)\n    return len(pad)",
        "n = evaluate(bytearray(2000))",
        "progress.tasks", "tensor-kept", "progress.add_task", "    progress.remove_task(bar)",
    ),
    "a window of which the length is known": Leaking(
        "class Buffer:\n    def __init__(self):\n        self.window, self.frames = 6, []\n"
        "    def update(self, frames):\n        self.frames.extend(frames)\n"
        "    def newest(self):\n        return len(self.frames[-self.window:])\nbuffer = Buffer()",
        "buffer.update([[i] * 100 for i in range(4)])\nn = buffer.newest()",
        "buffer.frames", "container-growth", "self.frames.extend", "        del self.frames[:-self.window]",
        per_run=4.0,
    ),
    "events of which five are read": Leaking(
        "streams = {'main': {'n': 0, 'events': []}}\ndef record(name, event):\n    stream = streams[name]\n"
        "    stream['n'] += 1\n    stream['events'].append((stream['n'], event))\n"
        "    return [number for number, _ in stream['events'][-5:]]",
        "newest = record('main', [0] * 200)",
        "streams['main']['events']", "container-growth", "append", "    del stream['events'][:-5]",
    ),
}  # fmt: skip
