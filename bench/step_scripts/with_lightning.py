import lightning
import torch
from stopwatch import STEPS, lap, loader, model, show


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = model()

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_train_batch_end(self, *_):
        lap()


options = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
lightning.Trainer(max_steps=STEPS, accelerator="auto", devices=1, **options).fit(Module(), loader())
show()
