"""Programs where a ``def`` is to be changed, what it registers is to be kept, or what it puts in place put back."""

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
}
