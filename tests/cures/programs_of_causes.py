"""Programs where the cause can be changed: what still runs is ended, keys stay the same, as much stays as is read."""

from __future__ import annotations

from programs import NET, WORDS_ONLY, Leaking

POOL = "from concurrent.futures import ThreadPoolExecutor\n"
CAUSES = {
    "a bank of which 64 rows are read": Leaking(
        "import torch\nclass Bank:\n    def __init__(self):\n        self.rows = torch.empty(0, 10)\n"
        "    def push(self, x):\n        self.rows = torch.cat([self.rows, x])\nbank = Bank()",
        "bank.push(torch.randn(16, 10))\nnear = bank.rows[-64:].mean().item()",
        "bank.rows", "container-growth", "torch.cat", "        self.rows = self.rows[-64:].clone()", unit="bytes",
        per_run=640.0,
    ),
    "a signal of which 500 values are read": Leaking(
        "import numpy as np\nsignal = np.zeros(0)",
        "signal = np.concatenate([signal, np.random.rand(200)])\nlevel = float(signal[-500:].mean())",
        "signal", "container-growth", "np.concatenate", "signal = signal[-500:].copy()", unit="bytes", per_run=1600.0,
    ),
    "a mean over the last 20": Leaking(
        "import numpy as np\nframes = []",
        "frames.append(np.random.rand(100))\nmean = np.mean(frames[-20:], axis=0)",
        "frames", "container-growth", "frames.append", "del frames[:-20]",
    ),
    "maps of which the newest is read": Leaking(
        NET + "maps = []\nnet.register_forward_hook(lambda module, args, out: maps.append(out))",
        "loss = net(torch.randn(16, 32)).pow(2).mean()\nloss.backward()\nshown = maps[-1].mean().item()",
        "maps", "graph-kept", "register_forward_hook", "del maps[:-1]",
    ),
    "activations of which three are read": Leaking(
        NET + "class Watch:\n    def __init__(self):\n        self.seen = []\n    def note(self, module, args, out):\n"
        "        self.seen.append(out)\n    def newest(self):\n"
        "        return [float(one.mean()) for one in self.seen[-3:]]\n"
        "watch = Watch()\nnet.register_forward_hook(watch.note)",
        "net(torch.randn(16, 32)).sum().backward()\nshown = watch.newest()",
        "watch.seen", "graph-kept", "self.seen.append", "        del self.seen[:-3]",
    ),
    "outputs that a hook collects and nobody reads": Leaking(
        NET + "seen = []\ndef note(module, args, out):\n    seen.append(out.detach())\nnet.register_forward_hook(note)",
        "loss = net(torch.randn(16, 32)).pow(2).mean()\nloss.backward()",
        "seen", "tensor-kept", "seen.append", "seen.clear()",
    ),
    "gradients that a hook of a tensor collects": Leaking(
        NET + "grads = []",
        "x = torch.randn(16, 32, requires_grad=True)\nx.register_hook(lambda grad: grads.append(grad))\n"
        "net(x).sum().backward()",
        "grads", "tensor-kept", "x.register_hook", "grads = []",
    ),
    "the path of a minimisation": Leaking(
        "import numpy as np\nfrom scipy.optimize import minimize\npath = []",
        "found = minimize(lambda x: float((x**2).sum()), np.ones(3000), method='CG',\n"
        "                 callback=lambda x: path.append(x.copy()), options={'maxiter': 3})",
        "path", "container-growth", "path.append", "path = []",
    ),
    "rows that a method of an object collects": Leaking(
        NET + "class Log:\n    def __init__(self):\n        self.rows = []\n    def add(self, module, args):\n"
        "        self.rows.append(args[0])\nlog = Log()\nnet.register_forward_pre_hook(log.add)",
        "net(torch.randn(16, 32)).sum().backward()",
        "log.rows", "tensor-kept", "self.rows.append", "log.rows.clear()",
    ),
    "views that a decorator subscribes": Leaking(
        "table = {}\ndef subscribe(event):\n    def decorator(function):\n"
        "        table.setdefault(event, []).append(function)\n        return function\n    return decorator\n"
        "def trigger(event):\n    return [function() for function in table.get(event, [])]\nclass View:\n"
        "    def __init__(self, size):\n        self.rows = [0] * size\n        subscribe('new')(self.rebuild)\n"
        "    def rebuild(self):\n        return len(self.rows)",
        "view = View(3000)\nn = trigger('new')[-1]",
        "table['new']", "callback-registry", "append(function)", "table['new'].remove(view.rebuild)",
    ),
    "listeners on a class": Leaking(
        "class Hub:\n    listeners = []\ndef listen(function):\n    Hub.listeners.append(function)\n"
        "    return function\n"
        "def tell(value):\n    for function in Hub.listeners:\n        function(value)",
        "rows = [0] * 2000\n@listen\ndef note(value, rows=rows):\n    rows[0] = value\ntell(3)",
        "Hub.listeners", "callback-registry", "Hub.listeners.append", "Hub.listeners.remove(note)",
    ),
    "panels that register themselves": Leaking(
        "class Page:\n    def __init__(self):\n        self.plugins = []\n    def plug(self, part):\n"
        "        self.plugins.append(part)\n    def draw(self):\n"
        "        return [part.draw() for part in self.plugins]\npage = Page()\nclass Panel:\n"
        "    def __init__(self):\n        self.rows = [0] * 3000\n        page.plug(self)\n"
        "    def draw(self):\n        return len(self.rows)",
        "panel = Panel()\nn = page.draw()[-1]",
        "page.plugins", "container-growth", "self.plugins.append", "page.plugins.remove(panel)",
    ),
    "handlers in a set": Leaking(
        "handlers = set()\ndef on_step(function):\n    handlers.add(function)\ndef step(value):\n"
        "    return [function(value) for function in handlers]",
        "seen = [0] * 2000\nnote = lambda value, seen=seen: seen.append(value)\non_step(note)\nstep(1)",
        "handlers", "callback-registry", "handlers.add", "handlers.discard(note)",
    ),
    "a metric that can be reset": Leaking(
        "import torch\nclass Curve:\n    def __init__(self):\n        self.preds, self.target = [], []\n"
        "    def update(self, preds):\n        self.preds.append(preds)\n    def compute(self):\n"
        "        return torch.cat(self.preds).mean().item()\n    def reset(self):\n"
        "        self.preds, self.target = [], []\n"
        "curve = Curve()",
        "for _ in range(3):\n    curve.update(torch.rand(200))\nscore = curve.compute()",
        "curve.preds", "tensor-kept", "self.preds.append", "curve.reset()", per_run=3.0,
    ),
    "a metric that is called, and empties what it has by name": Leaking(
        "import torch\nclass Score:\n    def __init__(self):\n        self.states, self.preds = ['preds'], []\n"
        "    def __call__(self, preds):\n        self.preds.append(preds)\n        return preds.mean()\n"
        "    def reset(self):\n        for name in self.states:\n            getattr(self, name).clear()\n"
        "score = Score()",
        "value = score(torch.rand(600)).item()",
        "score.preds", "tensor-kept", "self.preds.append", "score.reset()",
    ),
    "a pack hook that hands on what it is given": Leaking(
        "import torch\nx = torch.randn(600, requires_grad=True)\nclass Store:\n    def pack(self, tensor):\n"
        "        return (tensor.device, tensor)\n    def unpack(self, packed):\n        return packed[1]",
        "store = Store()\n"
        "with torch.autograd.graph.saved_tensors_hooks(store.pack, store.unpack):\n    y = x.exp()\n"
        "value = y.sum().item()\ndel y, store",
        "torch.Tensor.grad_fn -> saved for backward as 'result'[1]", "immortal-cycle", "",
        "        return (tensor.device, tensor.detach())", makes="x.exp()",
    ),
    "a class of the cell that a library's table remembers": Leaking(
        "import torch.distributions as D",
        "class Own(D.Normal):\n    rows = [0] * 2000\n"
        "kl = D.kl_divergence(Own(0.0, 1.0), D.Normal(0.0, 2.0)).item()\ndel Own, kl",
        "torch.distributions.kl._KL_MEMOIZE", "global-cache", "", 'if "_Own" not in globals():',
        root="module 'torch.distributions.kl'",
    ),
    "a handler of a library that can be flushed": Leaking(
        "import logging, logging.handlers\nlogger = logging.getLogger('leaklab.tests.flush')\n"
        "handler = logging.handlers.BufferingHandler(100_000)\nlogger.addHandler(handler)",
        "logger.warning('x' * 3000)\nn = len(handler.buffer)",
        "handler.buffer", "container-growth", "", "handler.flush()",
    ),
    "a recorder that clears by slices": Leaking(
        "class Recorder:\n    def __init__(self):\n        self.rows = {'a': []}\n    def note(self, row):\n"
        "        self.rows['a'].append(row)\n    def total(self):\n        return sum(map(len, self.rows['a']))\n"
        "    def clear(self, key='a'):\n        self.rows.clear()\n        self.rows['a'] = []\nrecorder = Recorder()",
        "recorder.note([0] * 400)\nn = recorder.total()",
        "recorder.rows['a']", "container-growth", "append(row)", "recorder.clear()",
    ),
    "statistics of which the newest are shown": Leaking(
        NET + "class Log:\n    def __init__(self):\n        self.stats = {}\n    def add(self, key, value, t):\n"
        "        self.stats.setdefault(key, []).append((t, value))\n    def latest(self):\n"
        "        return {key: float(rows[-1][1].mean()) for key, rows in self.stats.items()}\nlog = Log()\nt = 0",
        "t += 1\nlog.add('q', net(torch.randn(16, 32)), t)\nshown = log.latest()",
        "log.stats['q']", "graph-kept", "append((t, value))", "        del self.stats[key][:-1]",
    ),
    "errors by row": Leaking(
        "problems, row = {}, 0\ndef check(size):\n    values = list(range(1000, 1000 + size))\n"
        "    raise ValueError(values[-1])",
        "row += 1\ntry:\n    check(500)\nexcept ValueError as error:\n    problems[row] = error",
        "problems", "global-cache", "problems[row]", "    problems[row] = repr(error)",
    ),
    "a metric that is attached under a name": Leaking(
        "class Engine:\n    def __init__(self):\n        self.table = {}\n    def run(self):\n"
        "        return [one.value() for one in self.table.values()]\nclass Metric:\n    def __init__(self):\n"
        "        self.rows = [0] * 1000\n    def value(self):\n        return len(self.rows)\n"
        "    def attach(self, engine, name, usage='all'):\n        engine.table[id(self), name] = self\n"
        "    def detach(self, engine, usage='all'):\n        assert usage == 'all'\n"
        "        engine.table = {key: one for key, one in engine.table.items() if one is not self}\nengine = Engine()",
        "metric = Metric()\nmetric.attach(engine, 'score')\nvalues = engine.run()",
        "engine.table", "container-growth", "metric.attach", "metric.detach(engine)",
    ),
    "loggers with the number of the run": Leaking(
        "import logging\nrun = 0\ndef train(name):\n    log = logging.getLogger(f'leaklab_tests.{name}')\n"
        "    log.debug('loss')",
        "run += 1\ntrain(f'run{run}')",
        "logging.root.manager.loggerDict", "global-cache", "getLogger(f",
        '    log = logging.getLogger("leaklab_tests")',
    ),
    "loggers with the name of a percent sign": Leaking(
        "import logging\nrun = 0",
        "run += 1\nlog = logging.getLogger('leaklab_epoch_%d' % run)\nlog.debug('loss')",
        "logging.root.manager.loggerDict", "global-cache", "getLogger('", 'log = logging.getLogger("leaklab_epoch")',
    ),
    "nodes of a graph of which the newest are asked": Leaking(
        "import networkx\ngraph, step = networkx.DiGraph(), 0",
        "step += 1\ngraph.add_node(step, weights=[0] * 1000)\nparents = list(graph.predecessors(step))",
        "graph._node", "container-growth", "graph.add_node", WORDS_ONLY,
    ),
    "a watch that is asked for by what it returned": Leaking(
        "class Watch:\n    pass\nclass Observer:\n    def __init__(self):\n        self.table = {}\n"
        "    def schedule(self, function, path):\n        watch = Watch()\n        self.table[watch] = function\n"
        "        return watch\n    def unschedule(self, watch):\n        del self.table[watch]\nobserver = Observer()",
        "rows = [0] * 2000\ndef changed(rows=rows):\n    return len(rows)\nwatch = observer.schedule(changed, '/tmp')",
        "observer.table", "callback-registry", "observer.schedule",
        'if "watch" in globals():\n    observer.unschedule(watch)',
    ),
    "links of views": Leaking(
        "class Link:\n    def __init__(self, value, view):\n        self.value, self.view = value, view\n"
        "        value.listeners.append(self.update)\n    def update(self, new):\n        self.view.cut = new\n"
        "    def unlink(self):\n        self.value.listeners.remove(self.update)\nclass Value:\n"
        "    def __init__(self):\n        self.listeners = []\nclass View:\n    def __init__(self):\n"
        "        self.rows, self.cut = [0] * 2000, 0\nvalue = Value()",
        "view = View()\nlink = Link(value, view)",
        "value.listeners", "callback-registry", "listeners.append", 'if "link" in globals():\n    link.unlink()',
    ),
    "a timer that a function returns": Leaking(
        "import threading\ndef watch_over(block):\n    timer = threading.Timer(3600, len, [block])\n"
        "    timer.daemon = True\n    timer.start()\n    return timer",
        "timer = watch_over(bytearray(5000))",
        "a frame in thread 'Thread-1'", "thread-or-worker-kept", "timer.start",
        'if "timer" in globals():\n    timer.cancel()',
        makes="threading.Timer", root="thread 'Thread-1'",
    ),
    "executors of a class": Leaking(
        POOL + "class Memory:\n    def __init__(self):\n        self.pools = []\n    def search(self, words):\n"
        "        pool = ThreadPoolExecutor(max_workers=2)\n        self.pools.append(pool)\n"
        "        return list(pool.map(len, words))\nmemory = Memory()",
        "hits = memory.search(['a', 'bb'])",
        "memory.pools", "thread-or-worker-kept", "self.pools.append", "        self.pools.remove(pool)",
        makes="ThreadPoolExecutor(max",
    ),
    "timers in a list": Leaking(
        "import threading\ntimers = []",
        "timer = threading.Timer(3600, print)\ntimer.start()\ntimers.append(timer)",
        "timers", "thread-or-worker-kept", "timers.append", "timers.remove(timer)", makes="Timer(",
    ),
    "tasks that wait for ever": Leaking(
        "import asyncio\nloop = asyncio.new_event_loop()\nworkers = set()\nasync def work(queue):\n"
        "    while True:\n        await queue.get()\n        queue.task_done()\nasync def process(items):\n"
        "    queue = asyncio.Queue()\n    task = asyncio.ensure_future(work(queue))\n    workers.add(task)\n"
        "    for item in items:\n        queue.put_nowait(item)\n    await queue.join()\n    return len(items)",
        "done = loop.run_until_complete(process([1, 2, 3]))",
        "workers", "closure-kept", "workers.add", "    task.cancel()",
    ),
    "a cache with the epoch in its key": Leaking(
        "import torch\nclass Data:\n    epoch = 0\n    def __init__(self):\n"
        "        self.images, self.cache = torch.rand(4, 50), {}\n"
        "    def get(self, i):\n        key = (self.epoch, i)\n        if key not in self.cache:\n"
        "            self.cache[key] = self.images[i] * 2\n        return self.cache[key]\ndata = Data()",
        "data.epoch += 1\nmean = sum(float(data.get(i).mean()) for i in range(4))",
        "data.cache", "tensor-kept", "self.cache[key] =", "        key = i", per_run=4.0,
    ),
    "a window that is bound anew": Leaking(
        "import torch\nrecent = []",
        "recent = recent + [torch.randn(50)]\nmean = sum(recent[-10:]) / len(recent[-10:])",
        "recent", "tensor-kept", "recent = recent", "recent = recent[-10:]",
    ),
    "models of trials, of which the losses are read": Leaking(
        NET + "results = []\ndef trial(lr):\n    model = torch.nn.Linear(32, 4)\n"
        "    results.append({'lr': lr, 'loss': 2 * lr, 'model': model})\n"
        "    return min(results, key=lambda one: one['loss'])['lr']",
        "best = trial(0.1)",
        "results", "run-switch", "results.append", "    results.append({'lr': lr, 'loss': 2 * lr})",
        path=(("[23]", "dict"), ("['model']", "torch.nn.modules.linear.Linear")), per_run=2.0,
    ),
    "a metric of a function that is never reset": Leaking(
        NET + "class Accuracy:\n    def __init__(self):\n        self.right = []\n"
        "    def update(self, one):\n        self.right.append(one)\n"
        "    def compute(self):\n        return torch.stack(self.right).mean().item()\n"
        "    def reset(self):\n        self.right.clear()\nmetric = Accuracy()\n"
        "def validate():\n    for _ in range(3):\n        metric.update(torch.rand(8))\n    return metric.compute()",
        "value = validate()",
        "metric.right", "tensor-kept", "self.right.append", "metric.reset()", per_run=3.0,
    ),
    "agents that were there from the start": Leaking(
        "import torch\nclass Agent:\n    def __init__(self):\n        self.memory, self.alive = torch.zeros(50), True\n"
        "world = [Agent() for _ in range(10)]\ndef tick():\n    world[0].alive = False\n    world.append(Agent())\n"
        "    return sum(one.alive for one in world)",
        "n = tick()",
        "world", "tensor-kept", "world.append", WORDS_ONLY,
    ),
    "a mask of which each is asked for first": Leaking(
        "import torch\nmasks = {}\ndef mask_for(length, seed):\n    mask = masks.get((length, seed))\n"
        "    if mask is None:\n        mask = masks[length, seed] = torch.rand(length) > 0.5\n    return mask\nn = 0",
        "n += 1\nmask_for(600, n)",
        "masks", "global-cache", "masks[length, seed] =", "        while len(masks) > 5:",
    ),
    "positions by setdefault, which are returned": Leaking(
        "import torch\npositions = {}\ndef rows(n):\n    return positions.setdefault(n, torch.arange(n))\nn = 200",
        "n += 1\nrows(n)",
        "positions", "global-cache", "positions.setdefault",
        "    while len(positions) > 5:\n        positions.pop(next(iter(positions)))\n"
        "    return positions.setdefault(n, torch.arange(n))",
    ),
    "a cache whose keys hold its length": Leaking(  # emptied it is none, and shorter it finds what is another's
        "import torch\ncodes = {}\ndef encode(row):\n    key = (len(row), len(codes))\n    if key not in codes:\n"
        "        codes[key] = torch.stack(row).float()\n    return codes[key]",
        "encode([torch.rand(50)] * 3)",
        "codes", "global-cache", "codes[key] =", "",
    ),
    "a cache by hand whose limit asks the wrong list": Leaking(
        "import torch\nfrom collections import OrderedDict\nclass Cache:\n    def __init__(self):\n"
        "        self.store, self.order = OrderedDict(), []\n    def get(self, key):\n        if key in self.store:\n"
        "            self.store.move_to_end(key)\n            return self.store[key]\n"
        "        self.store[key] = torch.randn(200)\n        if len(self.order) > 64:\n"
        "            self.store.popitem(last=False)\n        return self.store[key]\ncache = Cache()\nn = 0",
        "n += 1\ncache.get(n)",
        "cache.store", "tensor-kept", "self.store[key] =", "        while len(self.store) > 5:",
    ),
    "entries of a sparse gradient": Leaking(
        "import torch\nusers = torch.nn.Embedding(100_000, 16, sparse=True)\n"
        "def train():\n    users(torch.randint(0, 100_000, (64,))).pow(2).sum().backward()",
        "train()",
        "users.weight.grad", "container-growth", ".backward()", "users.zero_grad()\ntrain()", unit="bytes",
        per_run=4600.0,
    ),
    "a cache with the run in the text of its key": Leaking(
        "import numpy as np\ntables, run = {}, 0\ndef table(size):\n    if f'{run}/{size}' not in tables:\n"
        "        tables[f'{run}/{size}'] = np.arange(size)\n    return tables[f'{run}/{size}']",
        "run += 1\ntotal = int(table(100).sum() + table(200).sum())",
        "tables", "global-cache", "tables[f'{run}/{size}'] =", "    if f'/{size}' not in tables:", per_run=2.0,
    ),
    "a cache by setdefault with the step in its key": Leaking(
        "masks = {}\nclass Model:\n    step = 0\n    def mask(self, n):\n        self.step += 1\n"
        "        return masks.setdefault((n, self.step), [0] * n)\nmodel = Model()",
        "short, long = model.mask(100), model.mask(300)",
        "masks", "container-growth", "setdefault", "        return masks.setdefault(n, [0] * n)", per_run=2.0,
    ),
    "a filter in each setup": Leaking(
        "import logging\nlogger = logging.getLogger('leaklab.tests.setup')\nclass Run(logging.Filter):\n"
        "    def __init__(self, config):\n        super().__init__()\n        self.config = config\n"
        "def set_up(config):\n    logger.addFilter(Run(config))\n    return logger",
        "set_up({'rows': list(range(500))}).info('begins')",
        "logger.filters", "callback-registry", "logger.addFilter", "        logger.removeFilter(earlier)",
    ),
    "a handler that writes into a buffer of the run": Leaking(
        "import io, logging\nlogger = logging.getLogger('leaklab.tests.buffer')",
        "text = io.StringIO('x' * 4000)\nlogger.addHandler(logging.StreamHandler(text))\nlogger.warning('a')",
        "logger.handlers", "callback-registry", "logger.addHandler", "logger.removeHandler(handler)",
    ),
    "a filter of a class that knows its object": Leaking(
        "import logging\nclass Tag(logging.Filter):\n    def __init__(self, owner):\n        super().__init__()\n"
        "        self.owner = owner\nclass Job:\n    def __init__(self):\n        self.rows = [0] * 1000\n"
        "        logger = logging.getLogger('leaklab.tests.tag')\n        logger.addFilter(Tag(self))\n"
        "logger = logging.getLogger('leaklab.tests.tag')",
        "job = Job()\nlogger.info(len(job.rows))",
        "logger.filters", "callback-registry", "logger.addFilter", "            logger.removeFilter(earlier)",
    ),
    "results by run that are not the same": Leaking(
        "import numpy as np\nresults, run = {}, 0",
        "run += 1\nfor part in ('a', 'b'):\n    results[run, part] = np.random.rand(50)",
        "results", "global-cache", "results[run", "    while len(results) > 10:", per_run=2.0,
    ),
}  # fmt: skip
