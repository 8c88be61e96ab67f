"""Started by torchrun."""

import torch
from stopwatch import lap, loader, model, show

torch.distributed.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for inputs, targets in loader():
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(inputs), targets).backward()
    optimizer.step()
    lap()
if torch.distributed.get_rank() == 0:
    show()
torch.distributed.barrier()  # PyTorch may end a rank by SIGABRT that leaves others in a collective
torch.distributed.destroy_process_group()
