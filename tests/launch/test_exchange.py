"""What a rank makes of the steps of its workers, held against what they have told it."""

from __future__ import annotations

import json

from ranks_here import said_by

STEPS = """
import json, mmap, os, sys, threading
import numpy as np
from mpi4py import MPI
from launch.exchange.board import DENSE, Board
from launch.exchange.exchange import Exchange
from launch.exchange.forms import Held, TensorForm
from launch.exchange.questions import Asking
from launch.exchange.server import Laid
from launch.training.handles import QUESTION_BYTES, GroupHandles

class Keeper:
    step = 0
    noted = []

    def add(self, step_times_s):
        self.noted.append(self.step)

comm, keeper, handles = MPI.COMM_WORLD, Keeper(), GroupHandles.create()
gradient = Held(
    index=0,
    participant=0,
    offset=QUESTION_BYTES + 4096,
    form=TensorForm("float32", (3,), (1,)),
)
os.ftruncate(handles.memory, QUESTION_BYTES + 8192)
memory = np.frombuffer(mmap.mmap(handles.memory, 0), np.uint8)
board, asking = Board(memory[QUESTION_BYTES:], 1, 1), Asking(handles, 0)
exchange = Exchange(comm.Dup(), handles, 1, hosts=["a", "b"], keeper=keeper)
thread = threading.Thread(target=exchange.run)
thread.start()
exchange.lay_out(
    Laid(
        board_offset=QUESTION_BYTES,
        participants=1,
        parameters=1,
        held=[gradient],
        training_samples=6,
        validation_samples=0,
    )
)
rest = (2, 4)[comm.rank]
for keeper.step in range(6):
    number = keeper.step + 1
    board.is_full[0] = keeper.step != rest
    board.kinds[0] = DENSE
    board.marks[0] = board.done[0] = number
    os.eventfd_write(handles.wakeup, 1)
    os.eventfd_read(handles.agreements[number % 2])
    os.eventfd_read(handles.sums[number % 2])
    asking.what_next()
exchange.close()
thread.join()
sys.stdout.write(json.dumps(keeper.noted) + "\\n")
"""


def test_shares_are_judged_by_steps_that_are_full_on_every_node_and_begin_no_epoch():
    assert [json.loads(noted) for noted in said_by(2, STEPS)] == [[1, 3, 5]] * 2
