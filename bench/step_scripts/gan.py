import torch
from stopwatch import lap, loader, show

relu = torch.nn.ReLU()
generator = torch.nn.Sequential(torch.nn.Linear(64, 1024), relu, torch.nn.Linear(1024, 256))
critic = torch.nn.Sequential(torch.nn.Linear(256, 1024), relu, torch.nn.Linear(1024, 1))
of_critic = torch.optim.Adam(critic.parameters())
of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
for real, _ in loader():
    made = generator(torch.randn(len(real), 64))
    of_critic.zero_grad()
    (critic(made.detach()).mean() - critic(real).mean()).backward()
    of_critic.step()
    of_generator.zero_grad()
    (-critic(made).mean()).backward()
    of_generator.step()
    lap()
show()
