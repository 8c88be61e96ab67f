"""A small language model of Hugging Face, made from a configuration: nothing is downloaded."""

from argparse import ArgumentParser
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

PADDING = 0


class Counting(Dataset[dict[str, Any]]):
    """Made-up texts of different lengths, in which each token follows from the one before."""

    is_generated = True

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> dict[str, Any]:
        length = 8 + index % 25
        return {"input_ids": [1 + (index + position) % 99 for position in range(length)]}


def collate(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    rows = [torch.tensor(sample["input_ids"]) for sample in samples]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)
    mask = (ids != PADDING).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.where(mask == 1, -100)}


def make() -> tuple[GPT2LMHeadModel, Counting, Any]:
    """Give a model, its data set, and what makes a batch of samples."""
    config = GPT2Config(vocab_size=100, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config), Counting(), collate


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    model, dataset, collator = make()
    with TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, per_device_train_batch_size=args.batch_size, max_steps=args.steps, use_cpu=True,
            dataloader_num_workers=args.workers, save_strategy="no", report_to=[],
        )  # fmt: skip
        trainer = Trainer(model, settings, train_dataset=dataset, data_collator=collator)
        result = trainer.train()
    print(f"step {result.global_step}: loss {result.training_loss:.4f}")


if __name__ == "__main__":
    main()
