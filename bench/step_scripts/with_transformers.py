import tempfile

import torch
from stopwatch import STEPS, lap, show
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Laps(TrainerCallback):
    def on_step_end(self, *_, **__):
        lap()


config = BertConfig(
    vocab_size=64,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=16,
)
samples = [{"input_ids": torch.randint(64, (16,)), "labels": 1} for _ in range(8 * STEPS)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    net = BertForSequenceClassification(config)
    Trainer(net, arguments, train_dataset=samples, callbacks=[Laps()]).train()
show()
