import torch
from stopwatch import lap, loader, model, show

net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for inputs, targets in loader(workers=1):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(inputs), targets).backward()
    optimizer.step()
    lap()
show()
