"""Scripts as their users write them, for `ddlplan init`."""

HEAD = """
import argparse

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    # Points of a grid, and the side of the diagonal that each is on.
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.tensor([index % 8 / 8, index % 5 / 5]), int(index % 8 / 8 > index % 5 / 5)

"""

IN_FUNCTIONS = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.second = nn.Linear(width, 2)

    def forward(self, x):
        return F.log_softmax(self.second(F.relu(self.first(x))), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print(epoch, batch_idx, loss.item())


def test(model, device, test_loader):
    model.eval()
    with torch.no_grad():
        for data, target in test_loader:
            print(F.nll_loss(model(data.to(device)), target.to(device)).item())


def read_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--no-cuda", action="store_true")
    return parser.parse_args()


def main():
    args = read_arguments()
    device = torch.device("cpu" if args.no_cuda else "cpu")
    train_kwargs = {"batch_size": args.batch_size}
    if not args.no_cuda:
        train_kwargs.update({"num_workers": 0})
    points = Points(args.samples)
    train_loader = DataLoader(points, **train_kwargs)
    test_loader = DataLoader(Points(10), batch_size=5)
    torch.manual_seed(7)
    model = Net(args.width if points.count else 1).to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    for epoch in range(1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
    return model


if __name__ == "__main__":
    trained = main()
"""
)

AT_TOP_LEVEL = (
    HEAD
    + """
WIDTH = 4


def collate(samples):
    points, sides = zip(*samples)
    return {"points": torch.stack(points), "side": torch.tensor(sides)}


def init_weights(module):
    for parameter in module.parameters():
        nn.init.constant_(parameter, 0.1)


def descending(rate, of):
    return optim.SGD(of, rate)


device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(Points(40), 10, collate_fn=collate)
torch.manual_seed(7)
trained = nn.Sequential(nn.Linear(2, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1)).to(device)
init_weights(trained[2])
print(trained)
criterion = nn.BCEWithLogitsLoss()
optimizer = descending(rate=0.5, of=trained.parameters())
steps = len(loader)
warm = optim.lr_scheduler.ConstantLR(optimizer, 0.1, steps)
rest = optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
scheduler = optim.lr_scheduler.SequentialLR(
    optimizer=optimizer, schedulers=[warm, rest], milestones=[2]
)
for epoch in range(1):
    for batch in loader:
        points = batch["points"].to(device)
        scores = trained(points).squeeze(1)
        loss = criterion(scores, batch["side"].float().to(device)) + 0.01 * scores.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trained.parameters(), 0.05)
        optimizer.step()
        scheduler.step()
"""
)

UNSURE = (
    HEAD
    + """
from data_of_mine import loaders

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
args = parser.parse_args()
train_loader, val_loader = loaders()
model = nn.Linear(2, args.width, bias=args.width > 1)
optimizer = optim.SGD([{"params": model.parameters(), "lr": 0.1}])
scheduler = optim.lr_scheduler.StepLR(optimizer, 10)
state = torch.zeros(3)
for epoch in range(2):
    for points, side in train_loader:
        state = state + model(points).mean().detach()
        loss = F.cross_entropy(model(points), side, ignore_index=3) + state.sum()
        (loss / 4).backward()
        optimizer.step()
    scheduler.step()
"""
)

TWO_MODELS = (
    HEAD
    + """
encoder, decoder = nn.Linear(2, 3), nn.Linear(3, 2)
optimizer = optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for points, side in DataLoader(Points(40), batch_size=4):
    loss = F.cross_entropy(decoder(encoder(points)), side)
    loss.backward()
    optimizer.step()
"""
)

IN_A_CLASS = (
    HEAD
    + """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = optim.SGD(model.parameters(), lr=0.1)

    def fit(self, loader):
        for points, side in loader:
            loss = F.cross_entropy(self.model(points), side)
            loss.backward()
            self.optimizer.step()


Trainer(nn.Linear(2, 2)).fit(DataLoader(Points(40), batch_size=4))
"""
)

NO_LOADER = (
    HEAD
    + """
def get_batch():
    return torch.randn(4, 2), torch.zeros(4, dtype=torch.long)


model = nn.Linear(2, 2)
optimizer = optim.SGD(model.parameters(), lr=0.1)
for it in range(10):
    points, side = get_batch()
    loss = F.cross_entropy(model(points), side)
    loss.backward()
    optimizer.step()
"""
)
