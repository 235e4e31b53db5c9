"""Small programs that leak, with what a check says of them and how the first proposal changes them.

Only the first is written here by hand, the second is measured: the changed program runs in a process without leaklab.
"""

from __future__ import annotations

from dataclasses import dataclass

WORDS_ONLY = ""


@dataclass(frozen=True)
class Leaking:
    """One program.

    Attributes:
        setup: Runs once.
        cell: Runs again and again.
        holder: What the check names.
        cause: The slug of the cause.
        keeps: A part of the line that stores, in the cell or else in the setup; empty where no line is known.
        changed: A line, or lines one below the other, of the first proposal; empty where only words may be offered.
        makes: A part of the line that makes what leaks, where that decides.
        path: References and types of the steps that decide, besides the holder.
        root: Where the path begins.
        unit: What is counted.
        per_run: How many of these a run leaves.
    """

    setup: str
    cell: str
    holder: str
    cause: str
    keeps: str
    changed: str
    makes: str = ""
    path: tuple[tuple[str, str], ...] = ()
    root: str = "notebook variable"
    unit: str = "objects"
    per_run: float = 1.0


GRAPH = ((".grad_fn", "AddBackward0"),)
TRACEBACK = ((".__traceback__", "traceback"),)
NET = "import torch\nnet = torch.nn.Linear(32, 4)\n"

PROGRAMS = {
    "a list of losses": Leaking(
        NET + "history = []",
        "loss = net(torch.randn(16, 32)).pow(2).mean()\nloss.backward()\nhistory.append(loss)",
        "history", "graph-kept", "history.append", "history.append(loss.item())",
    ),
    "lists in nested dicts": Leaking(
        NET + "log = {'train': {'loss': []}}",
        "loss = net(torch.randn(16, 32)).pow(2).mean()\nlog['train']['loss'].append(loss * 2)",
        "log['train']['loss']", "graph-kept", "append", "log['train']['loss'].append((loss * 2).item())",
    ),
    "a dict of a loss and predictions in a method": Leaking(
        NET + "class Trainer:\n    def __init__(self):\n        self.outs = []\n    def step(self, x):\n"
        "        preds = net(x)\n        loss = preds.mean()\n"
        "        self.outs.append({'loss': loss, 'preds': preds})  # for the epoch\n        return loss\n"
        "trainer = Trainer()",
        "trainer.step(torch.randn(16, 32)).backward()",
        "trainer.outs", "graph-kept", "self.outs.append",
        "        self.outs.append({'loss': loss.item(), 'preds': preds.detach()})  # for the epoch",
    ),
    "a namedtuple of a step": Leaking(
        NET + "from collections import namedtuple\nStep = namedtuple('Step', 'loss logits')\ntrace = []",
        "logits = net(torch.randn(20, 32))\nloss = logits.logsumexp(1).mean()\ntrace.append(Step(loss, logits=logits))",
        "trace", "graph-kept", "trace.append", "trace.append(Step(loss.item(), logits=logits.detach()))",
    ),
    "a field of a dataclass": Leaking(
        NET + "from dataclasses import dataclass, field\n@dataclass\nclass Tracker:\n"
        "    seen: list = field(default_factory=list)\n    def note(self, value):\n        self.seen.append(value)\n"
        "tracker = Tracker()",
        "tracker.note(net(torch.randn(64, 32)))",
        "tracker.seen", "graph-kept", "self.seen.append", "        self.seen.append(value.detach())",
    ),
    "scalars extended by a comprehension": Leaking(
        NET + "norms = []",
        "out = net(torch.randn(8, 32))\nnorms.extend([row.norm() for row in out])",
        "norms", "graph-kept", "norms.extend", "norms.extend([row.norm().item() for row in out])", per_run=8,
    ),
    "outputs that the epoch reads": Leaking(
        NET + "outputs = []",
        "for _ in range(3):\n    outputs.append(net(torch.randn(8, 32)))\nmean = torch.cat(outputs).mean().item()",
        "outputs", "graph-kept", "outputs.append", "outputs = []", per_run=3,
    ),
    "outputs that a backward needs": Leaking(
        NET + "outputs = []",
        "net.zero_grad()\nfor _ in range(3):\n    outputs.append(net(torch.randn(8, 32)).mean())\n"
        "torch.stack(outputs[-3:]).mean().backward()",
        "outputs", "graph-kept", "outputs.append", "outputs = []", per_run=3,
    ),
    "one line with its loop": Leaking(
        NET + "rows = []",
        "for _ in range(2): rows.append(net(torch.randn(8, 32)))",
        "rows", "graph-kept", "rows.append", "for _ in range(2): rows.append(net(torch.randn(8, 32)).detach())",
        per_run=2,
    ),
    "a running total": Leaking(
        NET + "total = 0.0",
        "total += net(torch.randn(4, 32)).mean()",
        "total", "graph-kept", "total +=", "total += net(torch.randn(4, 32)).mean().item()", path=GRAPH,
    ),
    "a total that is assigned": Leaking(
        NET + "class Meter:\n    total = 0.0\n    def update(self, value, n):\n"
        "        self.total = self.total + value * n\nmeter = Meter()",
        "meter.update(net(torch.randn(4, 32)).mean(), 4)",
        "meter.total", "graph-kept", "self.total + value", "        self.total = self.total + (value * n).item()",
        unit="graph nodes", per_run=4,
    ),
    "an average that is handed on": Leaking(
        NET + "class Ema:\n    def __init__(self):\n        self.value = torch.zeros(())\n    def step(self, loss):\n"
        "        self.value = 0.9 * self.value + 0.1 * loss\n        return self.value\nema = Ema()",
        "net.zero_grad()\nloss = net(torch.randn(8, 32)).mean()\nema.step(loss)\nloss.backward()",
        "ema.value", "graph-kept", "0.9 * self.value", "        self.value = (0.9 * self.value + 0.1 * loss).detach()",
        path=GRAPH,
    ),
    "a hidden state": Leaking(
        "import torch\nrnn = torch.nn.GRU(8, 16)\nhidden = torch.zeros(1, 2, 16)",
        "out, hidden = rnn(torch.randn(5, 2, 8), hidden)\nscore = out.mean().item()",
        "hidden", "graph-kept", "rnn(torch", "hidden = hidden.detach()", path=GRAPH,
    ),
    "the state of an LSTM": Leaking(
        "import torch\nrnn = torch.nn.LSTM(8, 16)\nstate = None",
        "out, state = rnn(torch.randn(5, 2, 8), state)",
        "state[1]", "graph-kept", "rnn(torch", "state = tuple(tensor.detach() for tensor in state)", path=GRAPH,
    ),
    "gradients with their graph": Leaking(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))",
        "loss = model(torch.randn(4, 8)).pow(2).mean()\nloss.backward(create_graph=True)",
        "model[2].weight.grad", "graph-kept", "backward", "model.zero_grad()", path=((".grad", "torch.Tensor"),),
    ),
    "a gradient with its graph in a function": Leaking(
        "import torch\ndef penalty():\n    w = torch.randn(60, 60, requires_grad=True)\n"
        "    torch.tanh(w).sum().backward(create_graph=True)\n    return w.grad.pow(2).sum().item()",
        "p = penalty()",
        "torch.Tensor.grad.grad_fn", "immortal-cycle", "backward", "    w.grad = None",
        path=((".grad", "torch.Tensor"),), root="reference cycle that no variable reaches",
    ),
    "rows joined to one tensor": Leaking(
        "import torch\nfeatures = torch.zeros(0, 64)",
        "batch = torch.randn(16, 64)\nfeatures = torch.cat([features, batch])",
        "features", "container-growth", "torch.cat", "features = features[-50:].clone()", unit="bytes", per_run=4096,
    ),
    "arrays joined to one": Leaking(
        "import numpy as np\npreds = np.zeros((0, 100))",
        "preds = np.concatenate([preds, np.ones((64, 100))])",
        "preds", "container-growth", "np.conc", "preds = preds[-200:].copy()", unit="bytes", per_run=51200,
    ),
    "a text that gets longer": Leaking(
        "report = ''", "for i in range(30):\n    report += f'epoch {i} finished with loss {i / 7:.6f}\\n'",
        "report", "container-growth", "report +=", "    report = report[-5000:]", unit="characters", per_run=1050,
    ),
    "a view of a large tensor": Leaking(
        "import torch\nheads = []", "big = torch.randn(1000, 50)\nheads.append(big[0])",
        "heads", "tensor-kept", "heads.append", "heads.append(big[0].clone())",
    ),
    "a dict keyed by step": Leaking(
        "import torch\ncache = {}\nstep = 0", "step += 1\ncache[step] = torch.randn(32, 32)",
        "cache", "global-cache", "cache[step]", "    cache.pop(next(iter(cache)))",
    ),
    "a memory of what a policy did": Leaking(
        "import torch\nMEMORY = {}\npolicy = torch.nn.Linear(60, 2)\nt = 0\ndef act(step, obs):\n"
        "    logits = policy(obs)\n    MEMORY[step] = (obs, logits)\n    return logits.argmax().item()",
        "t += 1\nact(t, torch.randn(60))",
        "MEMORY", "global-cache", "MEMORY[step]", "    MEMORY[step] = (obs, logits.detach())",
    ),
    "a deque without a limit": Leaking(
        "import torch\nfrom collections import deque\nreplay = deque()",
        "replay.append((torch.randn(160), 1.0))\nif len(replay) > 3:\n    batch = [replay[-i] for i in (1, 2, 3)]",
        "replay", "tensor-kept", "replay.append", "    replay.popleft()",
    ),
    "a queue that nobody empties": Leaking(
        "import queue, torch\nresults = queue.Queue()", "results.put((1, torch.randn(64, 32)))",
        "results.queue", "thread-or-worker-kept", "results.put", "    results.get_nowait()",
    ),
    "a set of sessions": Leaking(
        "class Session:\n    def __init__(self):\n        self.data = bytearray(3000)\nopen_sessions = set()",
        "s = Session()\nopen_sessions.add(s)",
        "open_sessions", "container-growth", "open_sessions.add", "open_sessions = set()",
    ),
    "a default argument": Leaking(
        "import torch\ndef collect(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
        "n = collect(torch.randn(500))",
        "collect.__defaults__[0]", "closure-kept", "seen.append", "def collect(x, seen=None):",
    ),
    "a buffer of text": Leaking(
        "import io\nbuffer = io.StringIO()", "for i in range(50):\n    buffer.write(f'step {i}: loss 0.123456\\n')",
        "buffer", "container-growth", "buffer.write", "buffer.truncate()", unit="characters", per_run=1200,
    ),
    "bytes that are appended": Leaking(
        "frames = bytearray()", "frames += bytes(4096)",
        "frames", "container-growth", "frames +=", "del frames[:-20000]", unit="bytes", per_run=4096,
    ),
    "copies of a model": Leaking(
        "import copy, torch\nmodel = torch.nn.Linear(32, 32)\nsnapshots = []", "snapshots.append(copy.deepcopy(model))",
        "snapshots", "deepcopy-kept", "snapshots.append", "del snapshots[:-5]", per_run=3,
    ),
    "a hook in the cell": Leaking(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(8, 8))",
        "def grab(module, args, out):\n    module.last = out.detach()\n"
        "model[0].register_forward_hook(grab)\ny = model(torch.randn(4, 8))",
        "model[0]._forward_hooks", "hook-left", "register_forward_hook", "handle.remove()",
    ),
    "hooks in a loop": Leaking(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))",
        "for layer in model:\n    layer.register_forward_hook(lambda m, a, o, pad=bytearray(900): None)\n"
        "y = model(torch.randn(4, 8))",
        "model[0]._forward_hooks", "hook-left", "register_forward_hook", "for handle in handles:",
    ),
    "a hook in a function": Leaking(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.ReLU())\n"
        "def features_of(model, x):\n    grabbed = {}\n    def hook(module, args, output):\n"
        "        grabbed['relu'] = output\n    model[1].register_forward_hook(hook)\n    model(x)\n"
        "    return grabbed['relu'].mean()",
        "f = features_of(net, torch.randn(4, 12))",
        "net[1]._forward_hooks", "hook-left", "register_forward_hook", "    handle.remove()",
    ),
    "a hook of an object": Leaking(
        "import torch\nnet = torch.nn.Linear(8, 8)\nclass Probe:\n    def __init__(self, module):\n"
        "        self.window = torch.zeros(500)\n        module.register_forward_hook(self.look)\n"
        "    def look(self, module, args, out):\n        self.window[0] = out.mean()",
        "probe = Probe(net)\nwith torch.no_grad():\n    y = net(torch.randn(2, 8))",
        "net._forward_hooks", "hook-left", "register_forward_hook", "probe.handle.remove()",
    ),
    "a subscription": Leaking(
        "class Bus:\n    def __init__(self):\n        self._subs = []\n    def subscribe(self, topic, fn):\n"
        "        self._subs.append((topic, fn))\n    def unsubscribe(self, topic, fn):\n"
        "        self._subs.remove((topic, fn))\nbus = Bus()\nclass View:\n    def __init__(self):\n"
        "        self.pixels = bytearray(4000)\n    def update(self, value):\n        self.pixels[0] = value",
        "view = View()\nbus.subscribe('step', view.update)",
        "bus._subs", "container-growth", "self._subs.append",
        "if \"view\" in globals():\n    bus.unsubscribe('step', view.update)",
    ),
    "a handler of a logger": Leaking(
        "import io, logging\nlogger = logging.getLogger('leaklab.fresh')\nlogger.propagate = False",
        "logger.addHandler(logging.StreamHandler(io.StringIO('x' * 5000)))\nlogger.warning('done')",
        "logger.handlers", "callback-registry", "addHandler", "logger.removeHandler(handler)",
    ),
    "a function to be called at exit": Leaking(
        "import atexit\nclass Engine:\n    def __init__(self):\n        self.weights = bytearray(9000)\n"
        "        atexit.register(self.close)\n    def close(self):\n        pass",
        "engine = Engine()",
        "probably the table of atexit.register", "callback-registry", "",
        'if "engine" in globals():\n    atexit.unregister(engine.close)\nengine = Engine()',
        makes="self.weights", root="probably the table of atexit.register",
    ),
    "exceptions": Leaking(
        "import torch\nerrors = []\ndef work(n):\n    big = torch.randn(n, 100)\n    return big @ torch.randn(3, 3)",
        "try:\n    work(50)\nexcept RuntimeError as error:\n    errors.append((50, error))",
        "errors", "traceback-kept", "errors.append", "    errors.append((50, repr(error)))", path=TRACEBACK,
    ),
    "a cache of a function": Leaking(
        NET + "import functools\n@functools.lru_cache(maxsize=None)\ndef encode(x):\n    return net(x).relu()",
        "z = encode(torch.randn(8, 32))",
        "encode", "global-cache", "encode(", "@functools.lru_cache(maxsize=5)",
    ),
    "a cache of a method": Leaking(
        "import functools, torch\nclass Encoder:\n    def __init__(self):\n        self.table = torch.randn(64, 16)\n"
        "    @functools.lru_cache(maxsize=None)\n    def embed(self, key):\n        return self.table[key] * 2",
        "vector = Encoder().embed(3)",
        "Encoder.__dict__['embed']", "global-cache", "embed(3)",
        "        self.embed = functools.lru_cache(maxsize=None)(self.embed)",
    ),
    "executors": Leaking(
        "from concurrent.futures import ThreadPoolExecutor\nexecutors = []",
        "pool = ThreadPoolExecutor(max_workers=2)\nexecutors.append(pool)\nsquares = list(pool.map(abs, range(5)))",
        "executors", "thread-or-worker-kept", "executors.append", "pool.shutdown()", makes="ThreadPoolExecutor(max",
    ),
    "timers": Leaking(
        "import threading", "payload = bytearray(5000)\nthreading.Timer(3600, print, [payload]).start()",
        "a frame in thread 'Thread-1'", "thread-or-worker-kept", "Timer(",
        'if "timer" in globals():\n    timer.cancel()\ntimer = threading.Timer(3600, print, [payload])\ntimer.start()',
        root="thread 'Thread-1'",
    ),
    "figures in a loop": Leaking(
        "import io, matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt",
        "for k in range(2):\n    fig = plt.figure(figsize=(1, 1))\n    fig.savefig(io.BytesIO())",
        "matplotlib._pylab_helpers.Gcf.figs", "global-cache", "plt.figure", "    plt.close(fig)",
        root="module 'matplotlib._pylab_helpers'", per_run=2,
    ),
    "a connection to a figure": Leaking(
        "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots()",
        "trace = bytearray(5000)\nfig.canvas.mpl_connect('motion_notify_event', lambda event, t=trace: None)",
        "fig._canvas_callbacks.callbacks['motion_notify_event']", "callback-registry", "mpl_connect",
        'if "connection" in globals():\n    fig.canvas.mpl_disconnect(connection)',
    ),
    "tasks in a set": Leaking(
        "import asyncio\nbackground = set()\nloop = asyncio.new_event_loop()\nasync def fetch():\n"
        "    return bytearray(5000)\nasync def main():\n    task = asyncio.ensure_future(fetch())\n"
        "    background.add(task)\n    await task",
        "loop.run_until_complete(main())",
        "background", "container-growth", "background.add", "    task.add_done_callback(background.discard)",
    ),
    "buffers under numbered names": Leaking(
        "import torch\nnet = torch.nn.Linear(8, 8)\nstep = 0",
        "step += 1\nnet.register_buffer(f'mask_{step}', torch.ones(80, 8))",
        "net._buffers", "global-cache", "register_buffer", 'net.register_buffer("mask", torch.ones(80, 8))',
    ),
    "attributes under numbered names, beside one of that name": Leaking(
        "import torch\nclass Model:\n    weight = 1\nmodel = Model()\nstep = 0",
        "step += 1\nsetattr(model, f'weight_{step}', torch.ones(80, 8))",
        "model.__dict__", "container-growth", "setattr", 'setattr(model, "weight_newest", torch.ones(80, 8))',
    ),
    "losses of which the sum is trained": Leaking(
        NET + "parts = []",
        "x = torch.randn(16, 32)\nparts.append(net(x).pow(2).mean())\nparts.append(net.weight.abs().sum())\n"
        "(parts[-1] + parts[-2]).backward()",
        "parts", "graph-kept", "parts.append(net(x)", "parts = []",
        per_run=2.0,
    ),
    "a total that is trained with another loss": Leaking(
        NET + "total = torch.zeros(())",
        "out = net(torch.randn(16, 32)).mean()\ntotal = total + out\n(total + "
        "net.weight.sum()).backward(retain_graph=True)",
        "total", "graph-kept", "total = total + out", "total = total.detach()",
        path=GRAPH,
    ),
    "a hook that a function of the cell registers": Leaking(
        NET,
        "def probe(module):\n    module.register_forward_hook(lambda *args: None)\n"
        "probe(net)\nout = net(torch.randn(4, 32))",
        "net._forward_hooks", "hook-left", "module.register_forward_hook", WORDS_ONLY,
    ),
    "a chain of results": Leaking(
        "import torch\nclass Result:\n    def __init__(self, before):\n        self.before = before\n"
        "        self.values = torch.ones(80, 8)\nresult = Result(None)",
        "result = Result(result)\nmean = result.values.mean()",
        "result", "tensor-kept", "result = Result", "result.before = None",
        path=((".before", "object"),),
    ),
    "groups of an optimizer": Leaking(
        "import torch\nbase = torch.nn.Linear(8, 8)\nopt = torch.optim.SGD(base.parameters(), lr=0.1, momentum=0.9)",
        "head = torch.nn.Linear(8, 40)\nopt.add_param_group({'params': head.parameters()})\nopt.zero_grad()\n"
        "head(base(torch.randn(3, 8))).sum().backward()\nopt.step()",
        "opt.state", "optimizer-state", "add_param_group", "    opt.state.pop(parameter, None)",
    ),
    "functions compiled in every run": Leaking(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())",
        "traced = torch.jit.trace(net, torch.randn(1, 4))\ny = traced(torch.randn(2, 4))",
        "probably the table of torch.jit.script or torch.jit.trace", "native", "",
        "    traced = torch.jit.trace(net, torch.randn(1, 4))",
        root="probably the table of torch.jit.script or torch.jit.trace", unit="bytes", per_run=90000,
    ),
    "a finalizer that refers to its object": Leaking(
        "import weakref\nclass Resource:\n    def __init__(self):\n        self.data = bytearray(2000)\n"
        "        weakref.finalize(self, self.report)\n    def report(self):\n        pass",
        "r = Resource()",
        "weakref.finalize._registry", "callback-registry", "weakref.finalize(", WORDS_ONLY, root="module 'weakref'",
    ),
    "threads that wait": Leaking(
        "import threading\nstop = threading.Event()\ndef serve(buffer):\n    stop.wait()",
        "worker = threading.Thread(target=serve, args=(bytearray(9000),), daemon=True)\nworker.start()",
        "a frame in thread 'Thread-1 (serve)'", "thread-or-worker-kept", "worker.start()", WORDS_ONLY,
        root="thread 'Thread-1 (serve)'",
    ),
    "a table of a library": Leaking(
        "import ctypes", "class Header(ctypes.Structure):\n    _fields_ = [('magic', ctypes.c_int)]\n"
        "p = ctypes.pointer(Header())",
        "_ctypes._pointer_type_cache", "global-cache", "ctypes.pointer", 'if "Header" not in globals():',
        root="module '_ctypes'",
    ),
    "a chain of objects": Leaking(
        "class Node:\n    def __init__(self, parent):\n        self.parent, self.data = parent, bytearray(2000)\n"
        "root = None",
        "root = Node(root)",
        "root", "unknown", "root = Node(root)", "root.parent = None", path=((".parent", "object"),),
    ),
    "a function that is wrapped again": Leaking(
        "class Timed:\n    def __init__(self, inner):\n        self.inner, self.data = inner, bytearray(2000)\n"
        "    def __call__(self, x):\n        return self.inner(x)\nstep = Timed(abs)",
        "step = Timed(step)", "step", "unknown", "step = Timed(step)",
        'step = Timed(getattr(step, "inner", step))',
        path=((".inner", "object"),),
    ),
    "a stream of a library that is wrapped again": Leaking(
        "import types\nlibrary = types.ModuleType('library')\nclass Tee:\n    def __init__(self, below):\n"
        "        self.below, self.data = below, bytearray(2000)\nlibrary.out = Tee(None)",
        "library.out = Tee(library.out)", "library.out", "unknown", "library.out = Tee", WORDS_ONLY,
        root="module 'library'", path=((".below", "object"),),
    ),
    "a subscription whose handle is dropped": Leaking(
        "class Handle:\n    def __init__(self, bus, key):\n        self.bus, self.key = bus, key\n"
        "    def dispose(self):\n        del self.bus.table[self.key]\n"
        "class Bus:\n    def __init__(self):\n        self.table, self.n = {}, 0\n    def subscribe(self, f):\n"
        "        self.n += 1\n        self.table[self.n] = f\n        return Handle(self, self.n)\n"
        "    def publish(self):\n        return [f() for f in list(self.table.values())]\nbus = Bus()",
        "bus.subscribe(lambda pad=bytearray(2000): len(pad))\nn = len(bus.publish())",
        "bus.table", "callback-registry", "self.table[self.n] = f",
        "handle = bus.subscribe(lambda pad=bytearray(2000): len(pad))", makes="bus.subscribe(",
    ),
    "a function that takes the registration back": Leaking(
        "listeners = []\ndef on_event(f):\n    listeners.append(f)\n    def off():\n        listeners.remove(f)\n"
        "    return off",
        "unsub = on_event(lambda pad=bytearray(2000): None)\nn = len([f() for f in listeners])",
        "listeners", "callback-registry", "listeners.append(f)", "unsub()",
    ),
    "a handle that a helper returns": Leaking(
        "import matplotlib\nmatplotlib.use('agg')\nfrom matplotlib.figure import Figure\n"
        "from matplotlib.backends.backend_agg import FigureCanvasAgg\ncanvas = FigureCanvasAgg(Figure())\n"
        "def follow(points):\n    return canvas.mpl_connect('button_press_event', lambda event: points[0])",
        "cid = follow(bytearray(3000))",
        "canvas.figure._canvas_callbacks.callbacks", "callback-registry", "return canvas",
        'if "cid" in globals():\n    canvas.mpl_disconnect(cid)\ncid = follow(bytearray(3000))',
    ),
    "a scope that is entered by hand": Leaking(
        "class Scope:\n    active = []\n    def __init__(self):\n        self.pad = bytearray(2000)\n"
        "    def __enter__(self):\n        Scope.active.append(self)\n        return self\n"
        "    def __exit__(self, *error):\n        Scope.active.remove(self)",
        "scope = Scope().__enter__()\nn = len(scope.pad)",
        "Scope.active", "global-cache", "Scope.active.append", "with Scope() as scope:",
    ),
    "a stack of contexts in a method": Leaking(
        "import contextlib\n@contextlib.contextmanager\ndef block():\n    yield bytearray(2000)\n"
        "class Trainer:\n    def __init__(self):\n        self.stack = contextlib.ExitStack()\n"
        "    def step(self):\n        pad = self.stack.enter_context(block())\n        return len(pad)\n"
        "trainer = Trainer()",
        "n = trainer.step()",
        "trainer.stack._exit_callbacks", "container-growth", "self.stack.enter_context", "        with block() as pad:",
    ),
    "a method that is wrapped again": Leaking(
        NET + "def timed(module):\n    forward, pad = module.forward, bytearray(2000)\n    def wrapper(x):\n"
        "        pad[0] = 1\n        return type(module).forward(module, x)\n    wrapper.inside = forward\n"
        "    module.forward = wrapper",
        "timed(net)\ny = net(torch.ones(2, 32)).detach()",
        "net.forward", "closure-kept", "", "net.forward = previous", path=(("closure variable 'forward'", "cell"),),
        makes="timed(net)",
    ),
    "a handler that each client adds": Leaking(
        "import logging\nlogger = logging.getLogger('leaklab.tests.clients')\nclass Client:\n"
        "    def __init__(self):\n        logger.addHandler(logging.NullHandler())",
        "client = Client()",
        "logger.handlers", "callback-registry", "logger.addHandler", "        if not logger.handlers:",
    ),
    "an error in a record": Leaking(
        "class Record:\n    error = None\nrecords = []\ndef run():\n    record, pad = Record(), bytearray(4000)\n"
        "    try:\n        1 / len(pad[:0])\n    except ZeroDivisionError as problem:\n        record.error = problem\n"
        "    records[:] = [*records, record.error]",
        "run()",
        "records", "traceback-kept", "record.error = problem", "        record.error = repr(problem)",
        path=((".error", "ZeroDivisionError"), *TRACEBACK),
    ),
    "a figure in a helper": Leaking(
        "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as plt\n"
        "plt.rcParams['figure.max_open_warning'] = 0\ndef report():\n    figure, axes = plt.subplots()\n"
        "    return len(figure.axes)",
        "n = report()",
        "matplotlib._pylab_helpers.Gcf.figs", "global-cache", "plt.subplots", "    plt.close(figure)",
        root="module 'matplotlib._pylab_helpers'",
    ),
}  # fmt: skip
