"""`leaklab watch` runs a program as python does, finds its loop, and says what it found whatever ends it."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.untraced

TRAINING = """
import sys, torch
torch.manual_seed(0)
def train(n_steps, leaks):
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    history = []
    for step in range(n_steps):
        loss = net(torch.randn(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if leaks:
            history.append(loss)
    return loss.item()
if __name__ == "__main__":
    print(train(int(sys.argv[1]), "leak" in sys.argv))
    {end}
"""


def start(arguments, folder, *, python=("-m", "leaklab", "watch")):
    return subprocess.Popen(
        [sys.executable, *python, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - a shell's background ignores it
    )


def run(arguments, folder, **options):
    process = start(arguments, folder, **options)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def written(folder, text, name="train.py"):
    (folder / name).write_text(text)
    return name


def test_a_leak_of_a_local_that_is_gone_at_the_end_is_named_with_its_line(tmp_path):
    name = written(tmp_path, TRAINING.replace("{end}", ""))
    plain = run([name, "2000", "leak"], tmp_path, python=())
    status, out, err = run(["--fail-on-leak", "--report", "report.json", name, "2000", "leak"], tmp_path)
    assert out == plain[1]  # the same loss
    assert (plain[0], status) == (0, 1)
    assert "`history in train()` grows by 1 tensor" in err
    assert "a leak" in err
    assert f"{name}:14 in train: history.append(loss)" in err
    assert "a step is a step of the optimizer torch.optim.sgd.SGD" in err
    assert "notebook" not in err
    assert '"history in train()"' in (tmp_path / "report.json").read_text()


def test_a_clean_program_is_told_to_be_steady_and_its_status_is_kept(tmp_path):
    name = written(tmp_path, TRAINING.replace("{end}", "sys.exit(7)"))
    status, _out, err = run(["--fail-on-leak", name, "1700"], tmp_path)
    assert status == 7
    assert "nothing grows at step 1,700" in err
    assert "ended by exit status 7" in err


def test_what_is_quiet_says_nothing_of_a_clean_program(tmp_path):
    name = written(tmp_path, TRAINING.replace("{end}", ""))
    assert run(["--quiet", name, "30"], tmp_path)[2] == ""


def test_an_option_behind_the_program_that_does_not_know_it_is_named(tmp_path):
    name = written(tmp_path, TRAINING.replace("{end}", ""))
    assert run([name, "5", "--report", "page.html"], tmp_path)[2].startswith(
        f"leaklab watch: --report comes after {name}, which gets it: put options of leaklab before the program\n"
    )
    knows = written(tmp_path, TRAINING.replace("{end}", "'--report'"), "knows.py")
    assert "comes after" not in run([knows, "5", "--report", "page.html"], tmp_path)[2]


SURROUNDINGS = """
import multiprocessing, os, pickle, sys
class Kept: pass
def double(number): return 2 * number
if __name__ == "__main__":
    main = sys.modules["__main__"]
    print(sys.argv, sys.path[0], __file__, __name__, __spec__ and __spec__.name, __package__, __doc__)
    print(type(__loader__).__name__, main.__dict__ is globals(), sorted(globals()))
    print(pickle.loads(pickle.dumps(Kept())).__class__ is Kept)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
    print([name for name in ("numpy", "torch") if name in sys.modules])
"""


@pytest.mark.parametrize("way", [["program.py", "--", "-x", "--report"], ["-m", "program", "1"], ["folder", "1"]])
def test_a_program_finds_what_it_finds_under_python(tmp_path, way):
    written(tmp_path, SURROUNDINGS, "program.py")
    (tmp_path / "folder").mkdir()  # whose functions python itself finds in no spawned process
    written(
        tmp_path / "folder",
        "\n".join(line for line in SURROUNDINGS.splitlines() if "pool" not in line.lower()),
        "__main__.py",
    )
    plain, watched = run(way, tmp_path, python=()), run(way, tmp_path)
    assert plain[0] == 0, plain[2]
    assert watched[:2] == plain[:2]
    assert "no steps were counted" in watched[2]
    assert "--step module:function" in watched[2]


def test_an_error_ends_the_program_as_it_would_and_its_traceback_begins_there(tmp_path):
    name = written(tmp_path, TRAINING.replace("{end}", "raise ValueError('the end')"))
    plain = run([name, "5"], tmp_path, python=())
    watched = run([name, "5"], tmp_path)
    assert watched[0] == plain[0] == 1
    before, _, after = watched[2].partition("leaklab watch, process")
    assert "ended by ValueError at step 5" in after or "at step 5, ended by ValueError" in after
    assert "/leaklab/" not in watched[2]
    assert plain[2] in watched[2] or plain[2] in before


def test_a_traceback_through_a_step_that_is_counted_has_the_places_of_the_program_only(tmp_path):
    text = "def work(n):\n    if n == 30:\n        raise ValueError('bad row')\nfor n in range(100):\n    work(n)\n"
    name = written(tmp_path, text)
    plain = run([name], tmp_path, python=())
    watched = run(["--step", "__main__:work", name], tmp_path)
    assert watched[0] == plain[0] == 1
    assert "at step 30, ended by ValueError" in watched[2]
    assert plain[2] in watched[2]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_is_ended_by_a_signal_has_its_report_and_dies_of_it(tmp_path, signum):
    text = TRAINING.replace("{end}", "").replace("            history.append(loss)", SAY_WHEN)
    process = start(["--on-death", "post", written(tmp_path, text), "100000000", "leak"], tmp_path)
    assert process.stdout.readline() == "far enough\n"
    process.send_signal(signum)
    _out, err = process.communicate(timeout=120)
    assert process.returncode == -signum
    assert "`history in train()`" in err.partition("leaklab watch, process")[2]
    assert f"ended by {'SIGTERM' if signum == signal.SIGTERM else 'KeyboardInterrupt'}" in err
    post_mortem = next((tmp_path / "post").glob("*.txt")).read_text()
    assert "  history in train()\n" in post_mortem.partition("Largest tensors")[2]
    assert ": `history in train()` grows by 1 tensor" in " ".join(post_mortem.split())


SAY_WHEN = """            history.append(loss)
            if step == 1000:
                print("far enough", flush=True)"""

CALLS = """
import asyncio
kept = []
class Server:
    async def handle(self, number):
        await asyncio.sleep(0)
        kept.append(bytes(1000 + number % 2))
async def main():
    server = Server()
    for number in range(2500):
        await server.handle(number)
asyncio.run(main())
"""


def test_a_function_that_is_named_is_the_clock(tmp_path):
    name = written(tmp_path, CALLS)
    status, _out, err = run(["--step", "Server.handle", name], tmp_path)
    assert status == 0
    assert "a step is a call of Server.handle" in err
    assert "`kept` grows" in err
    assert "at step 2,500" in err


def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path):
    name = written(tmp_path, CALLS)
    for options, words in (
        ([], "FILE"),
        (["missing.py"], "cannot open 'missing.py'"),
        (["--step", "nothing", name], f"there is no function nothing at the top of {name}"),
        (["--report", "r.pdf", name], "must end in .html or .json"),
    ):
        status, out, err = run(options, tmp_path)
        assert (status, out) == (2 if not options else 1, "")
        assert words in err


FORKS = """
import os, signal, time
statuses = []
for _ in range(100):  # also at once, before the interpreter in the child is ready
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(3)
    os.kill(child, signal.SIGTERM)
    statuses.append(os.waitpid(child, 0)[1])
print(set(statuses), signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_a_forked_child_dies_of_sigterm_at_once_and_says_nothing(tmp_path):
    began = time.monotonic()
    status, out, err = run([written(tmp_path, FORKS)], tmp_path)
    assert (status, out) == (0, f"{{{int(signal.SIGTERM)}}} set()\n")
    assert time.monotonic() - began < 30
    assert err.count("leaklab watch") == 1


WITHOUT_TORCH = """
import sys
seen = {}
def handle(number):
    seen[str(number)] = bytearray(3000)
for number in range(1700):
    handle(number)
print("torch" in sys.modules)
"""


def test_a_program_without_torch_is_watched_without_it(tmp_path):
    name = written(tmp_path, WITHOUT_TORCH)
    status, out, err = run(["--step", "handle", name], tmp_path)
    assert (status, out) == (0, "False\n")
    assert "`seen` grows by 1 entry (3.05 KiB) every step since step 1: a leak" in err
    assert f"{name}:5 in handle: seen[str(number)] = bytearray(3000)  <- keeps it" in err
    assert "stopped" not in err


STREAM = """\
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
class Stream:
    def __init__(self):
        self.history = []
    def __iter__(self):
        return self
    def __next__(self):
        self.history.append(torch.randn(500, 8))
        return self.history[-1]
for number, batch in enumerate(Stream()):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    if number == 1_500:
        break
"""


def test_what_a_loop_outside_of_functions_goes_through_is_found(tmp_path):
    name = written(tmp_path, STREAM)
    _code, _out, err = run([name], tmp_path)
    assert ".history of a Stream in running loop" in " ".join(err.split())
    assert "iterator of a loop  enumerate" in err
    assert f"{name}:10 in Stream.__next__: self.history.append(torch.randn(500, 8))  <- keeps it" in err
    assert "C code" not in err
    assert "loop: 1 " in err


@pytest.mark.parametrize(("seconds", "is_told"), [(4.0, True), (0.2, False)])
def test_work_that_other_processes_did_is_told_as_not_watched(tmp_path, seconds, is_told):
    name = written(
        tmp_path,
        "import subprocess, sys\n"
        f"busy = 'import time\\nwhile time.process_time() < {seconds}: pass'\n"
        "subprocess.run([sys.executable, '-c', busy], check=True)\n",
    )
    status, _out, err = run([name], tmp_path)
    assert status == 0
    assert (
        "of the processor and were not watched (where they are the workers of a pool, `leaklab.watch_calls`" in err
    ) is is_told
