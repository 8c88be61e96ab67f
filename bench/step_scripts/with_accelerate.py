import torch
from accelerate import Accelerator
from stopwatch import lap, loader, model, show

accelerator = Accelerator(cpu=not torch.cuda.is_available())
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
net, optimizer, batches = accelerator.prepare(net, optimizer, loader())
for inputs, targets in batches:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.cross_entropy(net(inputs), targets))
    optimizer.step()
    lap()
show()
