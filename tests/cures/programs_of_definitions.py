"""Programs whose own code shows the change: a ``def``, what is kept before or emptied beside, what is read."""

from __future__ import annotations

from programs import NET, Leaking

DEFINITIONS = {
    "a default argument that collects": Leaking(
        'import torch\ndef pad(batch, out=[]):\n    """Pad all."""\n    for x in batch:\n        out.append(x * 2)\n'
        "    return torch.stack(out[-len(batch):])",
        "b = pad([torch.randn(9), torch.randn(9)])",
        "pad.__defaults__[0]",
        "closure-kept",
        "out.append",
        "def pad(batch, out=None):",
        per_run=2.0,
    ),
    "a default of which five are read": Leaking(
        "import torch\ndef collect(x, seen=[]):\n    seen.append(x.argmax(1))\n    return sum(seen[-5:])",
        "s = collect(torch.randn(8, 5))",
        "collect.__defaults__[0]",
        "closure-kept",
        "seen.append",
        "    del seen[:-5]",
    ),
    "a cached method that asks nothing of its object": Leaking(
        "import functools, torch\nclass Encoder:\n    def __init__(self):\n        self.weight = torch.randn(9, 9)\n"
        "    @functools.cache\n    def positions(self, length):\n        return torch.arange(length).sin()\n"
        "    def encode(self):\n        return self.weight + self.positions(9)",
        "y = Encoder().encode()",
        "Encoder.__dict__['positions']",
        "global-cache",
        "self.positions",
        "    def positions(length):",
    ),
    "hooks of an object that has no name": Leaking(
        NET + "class Cam:\n    def __init__(self, layer):\n        layer.register_forward_hook(self.forward)\n"
        "        layer.register_full_backward_hook(self.backward)\n    def forward(self, module, args, out):\n"
        "        self.out = out.detach()\n    def backward(self, module, grad_in, grad_out):\n"
        "        self.grad = grad_out[0]\n    def __call__(self, x):\n        net(x).max().backward()\n"
        "        return self.out * self.grad\ndef explain(x):\n    return Cam(net)(x)",
        "heat = explain(torch.randn(4, 32))",
        "net._backward_hooks",
        "hook-left",
        "layer.register_full_backward_hook",
        "    cam.handle_2.remove()",
        per_run=2.0,
    ),
    "a method that is wrapped for a while": Leaking(
        NET + "net.predict = lambda x: net(x).argmax(1)\ndef profile(n):\n    times = []\n    inner = net.predict\n"
        "    def timed(x):\n        times.append(1.0)\n        return inner(x)\n    net.predict = timed\n"
        "    for _ in range(n):\n        net.predict(torch.randn(4, 32))\n    return sum(times) / len(times)",
        "mean = profile(3)",
        "net.predict.__closure__[0]",
        "closure-kept",
        "profile",
        "    net.predict = inner",
    ),
    "a part that a function wraps again": Leaking(
        NET + "class Clamp(torch.nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n"
        "        self.inner = inner\n    def forward(self, x):\n        return self.inner(x).clamp(-1, 1)\n"
        "model = torch.nn.Module()\nmodel.head = Clamp(net)\ndef finetune(x):\n    model.head = Clamp(model.head)\n"
        "    return model.head(x)",
        "y = finetune(torch.randn(4, 32))",
        "model.head._modules",
        "run-switch",
        "model.head = Clamp(model.head)",
        '    model.head = Clamp(getattr(model.head, "inner", model.head))',
        path=((".inner", "Clamp"),),
        per_run=4.0,
    ),
    "a parameter that another one replaces": Leaking(
        "import torch\nx = torch.nn.Parameter(torch.randn(40))\nopt = torch.optim.Adam([x])\ndef replace(data):\n"
        "    for group in opt.param_groups:\n        group['params'][0] = torch.nn.Parameter(data)\n"
        "    return opt.param_groups[0]['params'][0]",
        "opt.zero_grad()\nx.pow(2).sum().backward()\nopt.step()\nx = replace(x.detach().clone())",
        "opt.state",
        "optimizer-state",
        "group['params']",
        "        opt.state.pop(group['params'][0], None)",
        per_run=3.0,
    ),
    "data under numbered names": Leaking(
        "n = 0",
        "n += 1\nglobals()[f'table_{n}'] = table = bytearray(3000)",
        "globals()",
        "run-switch",
        "globals()",
        'globals()["table_newest"] = table = bytearray(3000)',
    ),
    "an entry of a library by its key": Leaking(
        "from xmlrpc.server import SimpleXMLRPCDispatcher\ncalls = SimpleXMLRPCDispatcher()\nrun = 0",
        "run += 1\nname = f'run {run}'\ncalls.register_function(bytearray(2000).find, name)\n"
        "n = len(calls.system_listMethods())",
        "calls.funcs",
        "container-growth",
        "calls.register_function",
        "calls.funcs.pop(name, None)",
    ),
    "a history as long as a group says": Leaking(
        "import torch\nclass Steps(torch.optim.Optimizer):\n    def __init__(self, params):\n"
        "        super().__init__(params, dict(size=3))\n    @torch.no_grad()\n    def step(self):\n"
        "        for group in self.param_groups:\n            for p in group['params']:\n"
        "                old = self.state[p].setdefault('old', [])\n                old.append(p.grad.clone())\n"
        "                p.sub_(0.1 * sum(old[-group['size']:]))\nx = torch.nn.Parameter(torch.randn(40))\n"
        "opt = Steps([x])",
        "opt.zero_grad()\nx.pow(2).sum().backward()\nopt.step()",
        "opt.state[x]['old']",
        "optimizer-state",
        "old.append",
        "                del old[:-group['size']]",
    ),
    "a function that is called at exit, to save": Leaking(
        "import atexit\nclass Engine:\n    def __init__(self):\n        self.weights = bytearray(9000)\n"
        "        atexit.register(self.save)\n    def save(self):\n        pass",
        "engine = Engine()",
        "probably the table of atexit.register",
        "callback-registry",
        "",
        "",
        makes="self.weights",
        root="probably the table of atexit.register",
    ),
    "what is drawn again and again": Leaking(
        "from matplotlib.figure import Figure\nax = Figure().add_subplot()\ndef show(n):\n    ax.plot([1, 2, n])",
        "show(3)",
        "ax._children",
        "container-growth",
        "ax.plot",
        "    for old in list(ax.lines):",
    ),
    "what is drawn in a loop": Leaking(
        "from matplotlib.figure import Figure\nax = Figure().add_subplot()\ndef show(rows):\n"
        "    ax.plot([0, 0])\n    for row in rows:\n        ax.plot(row)",
        "show([[1, 2], [2, 1]])",
        "ax._children",
        "container-growth",
        "ax.plot(row)",
        "    for old in list(ax.lines):\n        old.remove()\n    ax.plot([0, 0])",
        per_run=3.0,
    ),
    "iterators that nobody reads": Leaking(
        "import torch\ndata = torch.randn(40, 30)\niters = []\ndef first(rows):\n"
        "    it = iter(rows.split(4)); iters.append(it)\n    return next(it)",
        "x = first(data)",
        "iters",
        "container-growth",
        "iters.append",
        "    it = iter(rows.split(4))",
    ),
    "beside what is emptied": Leaking(
        "import torch\nclass Policy:\n    def __init__(self):\n        self.probs, self.rewards = [], []\n"
        "policy = Policy()\n"
        "def episode():\n    for _ in range(3):\n        policy.probs.append(torch.randn(90))\n"
        "        policy.rewards.append(1.0)\n    loss = torch.stack(policy.probs).sum() * len(policy.rewards)\n"
        "    del policy.rewards[:]\n    return loss.item()",
        "loss = episode()",
        "policy.probs",
        "tensor-kept",
        "policy.probs.append",
        "    del policy.probs[:]",
        per_run=3.0,
    ),
    "a dict of numbers and of a dict of tensors": Leaking(
        NET + "class Run:\n    def __init__(self):\n        self.history = []\n    def log(self, data, step):\n"
        "        self.history.append({'step': step, **data})\nrun = Run()",
        "out = net(torch.randn(16, 32))\nloss = out.pow(2).mean()\nloss.backward()\n"
        "run.log({'loss': loss, 'top': out.max()}, 3)",
        "run.history",
        "graph-kept",
        "self.history.append",
        "        self.history.append({'step': step, **{name: tensor.item() for name, tensor in data.items()}})",
        per_run=2.0,
    ),
    "a loss of which the newest is asked for its device": Leaking(
        NET + "seen = []\ndef shown(loss):\n    seen.append(loss)\n    return float(seen[-1].cpu().detach())",
        "loss = net(torch.randn(16, 32)).pow(2).mean()\nloss.backward()\nnumber = shown(loss)",
        "seen",
        "graph-kept",
        "seen.append",
        "    seen.append(loss.detach())",
    ),
    "a function of a module that is wrapped for a while": Leaking(
        "import textwrap\ndef count(text):\n    inner, calls = textwrap.fill, []\n    def counted(*args):\n"
        "        calls.append(len(args))\n        return inner(*args)\n    textwrap.fill = counted\n"
        "    shown = textwrap.fill(text)\n    return shown, len(calls)",
        "shown, n = count('a b c')",
        "textwrap.fill.__closure__[1]",
        "closure-kept",
        "textwrap.fill = counted",
        "    textwrap.fill = inner",
    ),
}
