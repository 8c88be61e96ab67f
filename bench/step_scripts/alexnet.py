"""A plain loop that trains AlexNet on pictures in memory, and prints its samples per second."""

import argparse
import time

import torch
from torchvision.models import alexnet

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--samples", type=int, default=1536)
arguments = parser.parse_args()

torch.manual_seed(0)
pictures = torch.randint(0, 256, (arguments.samples, 3, 224, 224), dtype=torch.uint8)
labels = torch.randint(0, 3, (arguments.samples,))
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(pictures, labels),
    batch_size=arguments.batch_size,
    shuffle=True,
    num_workers=arguments.workers,
    drop_last=True,
    persistent_workers=arguments.workers > 0,
)
model = alexnet(num_classes=3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
loss_of = torch.nn.CrossEntropyLoss()

began, trained = time.perf_counter(), 0
for number, (images, wanted) in enumerate(loader):
    optimizer.zero_grad()
    loss_of(model(images.float() / 255), wanted).backward()
    optimizer.step()
    if number == 0:  # the first step is slower, and loads what the others have
        began = time.perf_counter()
    else:
        trained += len(images)
print("samples per second", trained / (time.perf_counter() - began))
