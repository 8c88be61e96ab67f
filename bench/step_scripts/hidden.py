"""Updates its parameters itself, as a CUDA graph does: no optimizer is seen to step."""

import torch
from stopwatch import STEPS, lap, loader, model, show

net = model(width=64)
for inputs, targets in loader(batches=max(STEPS, 400)):
    torch.nn.functional.cross_entropy(net(inputs), targets).backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= 0.01 * parameter.grad
            parameter.grad = None
    lap()
show()
