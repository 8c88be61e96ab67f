"""Source is parsed right by many threads at once."""

from __future__ import annotations

import ast
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launch.system.found_by_file import parse_module

SOURCE = Path(ast.__file__).read_bytes()


def test_threads_may_parse_at_once():
    """Pages of the service were answered with 500: one of two threads ended with `SystemError`."""

    def let_another_run(*_):
        time.sleep(0)

    usual = gc.get_threshold()
    gc.callbacks.append(let_another_run)  # as what is collected does while a tree is built
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(4) as threads:
            trees = list(threads.map(parse_module, [SOURCE] * 8))
    finally:
        gc.set_threshold(*usual)
        gc.callbacks.remove(let_another_run)
    assert {len(tree.body) for tree in trees} == {len(ast.parse(SOURCE).body)}
