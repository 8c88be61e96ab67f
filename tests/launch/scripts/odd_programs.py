"""Broken and odd programs, with what is said of each."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

STEPS = """
import time
from torch.optim.optimizer import SGD
optimizer = SGD()
def steps():
    while True:
        time.sleep(0.001)
        optimizer.step()
"""
LOADER = """
from torch.utils.data.dataloader import DataLoader
loader = DataLoader([1] * 400)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odd:
    source: str = ""
    says: str | None = None
    """A part of the line; ``None``: it makes its steps."""
    command: tuple[str, ...] = ("{python}", "train.py")
    """With ``{outside}``: a file that it writes there, outside of its folder, when it is ended."""
    time_limit_s: float = 120.0
    files: dict[str, str] = field(default_factory=dict)


ODD = {
    "has a syntax error": Odd(source="def (", says="SyntaxError: invalid syntax"),
    "lacks a module": Odd(
        source="import not_there",
        says=f"ModuleNotFoundError: No module named 'not_there' in {sys.executable}",
    ),
    "exits at once": Odd(source="", says="no step of an optimizer seen"),
    "exits with a number": Odd(source="import sys; sys.exit(3)", says="exit code 3"),
    "exits early and well": Odd(
        source=STEPS + "optimizer.step()\nimport sys\nsys.exit(0)",
        says="exit code 0, it has not come to the end of 2 steps: let it make more steps, or pass",
    ),
    "leaves by os._exit": Odd(source="import os; os._exit(7)", says="exit code 7"),
    "leaves by os._exit after a step": Odd(
        source=STEPS + "optimizer.step()\nimport os\nos._exit(0)", says="exit code 0"
    ),
    "reads stdin": Odd(source="input()", says="standard input, which is empty"),
    "needs a terminal": Odd(source="open('/dev/tty')", says="/dev/tty"),
    "daemonises": Odd(
        source="import os, time\nif os.fork(): os._exit(0)\nos.setsid()\n"
        "if os.fork(): os._exit(0)\ntime.sleep(1000)",
        says="no step of an optimizer seen",
    ),
    "leaves a child behind": Odd(
        source="import subprocess\nsubprocess.Popen(['sleep', '1000'])\n1 / 0",
        says="ZeroDivisionError: division by zero",
    ),
    "ignores SIGINT, and SIGTERM after it": Odd(
        source="import signal\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\n"
        + STEPS
        + "steps()"
    ),
    "swallows KeyboardInterrupt": Odd(
        source=STEPS
        + "while True:\n    try: steps()\n    except BaseException as error: print(repr(error))"
    ),
    "sets a handler of its own": Odd(
        # It has to be ended by SIGINT: the others leave no file.
        source="import signal, sys\n"
        "def leave(*_):\n    open(sys.argv[1], 'w').close()\n    sys.exit(5)\n"
        "signal.signal(signal.SIGINT, leave)\n" + STEPS + "steps()",
        command=("{python}", "train.py", "{outside}"),
    ),
    "forks": Odd(
        source="import os, time\nif not os.fork(): time.sleep(1000)\n" + STEPS + "steps()"
    ),
    "has a child that is a zombie": Odd(
        source="import os\nif not os.fork(): os._exit(0)\n" + STEPS + "steps()"
    ),
    "starts a pool by spawn": Odd(
        source=STEPS
        + "def work(x): return x\n"
        + "if __name__ == '__main__':\n    import multiprocessing\n"
        + "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        + "        assert pool.map(work, [1]) == [1]\n        steps()\n"
    ),
    "steps in a process of a fork server": Odd(
        source=STEPS
        + "if __name__ == '__main__':\n    import multiprocessing\n"
        + "    forks = multiprocessing.get_context('forkserver')\n"
        + "    child = forks.Process(target=steps)\n    child.start()\n    child.join()\n"
    ),
    "writes into its folder": Odd(
        source="import os\nopen('new.txt', 'w').write('x')\nopen('data.txt', 'a').write('x')\n"
        "os.remove('train.py')\nos.makedirs('a/b')\n" + STEPS + "steps()"
    ),
    "prints what is no text": Odd(
        source="import os, sys\nos.write(1, b'\\xff\\xfe\\x00\\n')\nsys.exit(4)", says="exit code 4"
    ),
    "never steps": Odd(
        source="import time\nwhile True: time.sleep(0.1)",
        says="time limit: raise --budget, or use --step-regex where it trains without an optimizer",
        time_limit_s=1.0,
    ),
    "needs a port that another trial has": Odd(
        source="raise OSError(98, 'Address already in use')", says="let each start take a free one"
    ),
    "closes its files": Odd(
        source=STEPS + "optimizer.step()\nimport os\nos.closerange(3, 4096)\nsteps()",
        says="it has closed all its files, ddlplan's too (use --step-regex or --no-python)",
    ),
    "changes its folder": Odd(source="import os\nos.chdir('/')\n" + STEPS + "steps()"),
    "becomes another program": Odd(
        source="import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'pass'])",
        says="no step of an optimizer seen",
    ),
    "allocates too much": Odd(
        source="import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
        "x = bytearray(2**34)",
        says="MemoryError",
    ),
    "raises in a thread": Odd(
        source="import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
        says="no step of an optimizer seen",
    ),
    "kills itself": Odd(
        source="import os; os.kill(os.getpid(), 11)", says="killed by signal 11 (SIGSEGV)"
    ),
    "is a module of a package": Odd(
        command=("{python}", "-m", "package.train", "x"),
        files={
            "package/__init__.py": "",
            "package/other.py": STEPS,
            "package/train.py": "from .other import steps\nif __name__ == '__main__': steps()",
        },
    ),
    "has odd arguments": Odd(
        source="import sys\nassert sys.argv[1:] == ['{a}', '\"', 'x\\ny', ''], sys.argv\n"
        + STEPS
        + "steps()",
        command=("{python}", "-u", "train.py", "{{a}}", '"', "x\ny", ""),
    ),
    "is code": Odd(
        command=(
            "{python}",
            "-Bc",
            "def work(size: int): pass\nassert work.__annotations__ == dict(size=int)\n"
            + STEPS
            + "steps()",
        )
    ),
    "has a finder of modules of an old kind": Odd(
        source="import sys\nclass Finder:\n    def find_module(self, name, path=None): pass\n"
        "sys.meta_path.insert(0, Finder())\n" + STEPS + "steps()"
    ),
    "is a folder": Odd(
        command=("{python}", "folder"),
        files={
            "folder/__main__.py": "import sys\nsys.path.insert(0, '.')\n" + STEPS + "steps()",
        },
    ),
    "steps in a process of its own": Odd(
        source="import os\nif os.fork(): os.wait()\n" + STEPS + "steps()"
    ),
    "trains twice": Odd(
        source=STEPS + "for _ in range(4):\n    optimizer.step()\noptimizer = SGD()\nsteps()",
        says="another optimizer, SGD, has begun to step",
    ),
    "looks at its data before it trains": Odd(
        source=STEPS
        + LOADER
        + "for _ in loader: pass\nfor _ in loader:\n    time.sleep(0.001)\n    optimizer.step()"
    ),
    "has processes that each end their part of the data with a smaller batch": Odd(
        source=STEPS
        + LOADER.replace("[1] * 400", "[8] * 3 + [5] * 2")
        + "loader.num_workers = 2\nwhile True:\n    for _ in loader:\n        time.sleep(0.001)\n"
        + "        optimizer.step()"
    ),
    "has a critic that steps five times as often": Odd(
        source=STEPS
        + "generator = SGD()\nwhile True:\n    for _ in range(5):\n        time.sleep(0.001)\n"
        + "        optimizer.step()\n    generator.step()"
    ),
    "hides its steps": Odd(
        source=LOADER + "for _ in loader: pass",
        says="256 batches read and no step of an optimizer seen (a CUDA graph hides its steps, or "
        "it first reads them all)",
    ),
    "has optimizers without a pace": Odd(
        source=STEPS
        + "others, steps = [SGD(), SGD()], 0\nwhile True:\n    steps += 1\n"
        # Ones of the binary digits, odd or even: nothing in it comes three times in a row.
        + "    others[bin(steps).count('1') % 2].step()",
        says="step without a pattern",
    ),
}
