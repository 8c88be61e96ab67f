import torch
from stopwatch import lap, loader, model, show

device = "cuda" if torch.cuda.is_available() else "cpu"
net = model().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler(device)
for inputs, targets in loader():
    optimizer.zero_grad()
    with torch.autocast(device, torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(net(inputs.to(device)), targets.to(device))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    lap()
show()
