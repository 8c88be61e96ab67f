import tempfile

import torch
from stopwatch import lap, loader, model, show


def train(rank, store):
    file = torch.distributed.FileStore(store, 2)
    torch.distributed.init_process_group("gloo", store=file, rank=rank, world_size=2)
    net = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for inputs, targets in loader():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()
        lap()
    if rank == 0:
        show()
    torch.distributed.barrier()  # PyTorch may end one by SIGABRT that leaves others in a collective
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (f"{folder}/store",), nprocs=2)
