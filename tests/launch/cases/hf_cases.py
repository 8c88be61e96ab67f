"""Tiny models of `transformers`, made from a configuration: nothing is downloaded."""

from __future__ import annotations

import torch
from tiny_cases import Pictures, Sentences
from torch.optim import SGD
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

SIZES = {"vocab_size": 11, "pad_token_id": 0}
BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
BERT |= {"intermediate_size": 16, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def padded(samples):
    """Texts, padded to the longest; the labels of padding and of some tokens do not count."""
    ids = torch.nn.utils.rnn.pad_sequence(list(samples), batch_first=True)
    labels = ids.masked_fill((ids == 0) | (ids == 3), -100)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


def rate_one(parameters):
    return SGD(parameters, lr=1.0)


def described(model, dataset, collator, **more):
    """One step at rate 1 moves the weights by exactly their gradient."""
    names = {"model": model, "train_dataset": dataset, "data_collator": collator}
    return names | {"optimizer": rate_one, "batch_size": 8} | more


def gpt2(texts: int = 13, width: int = 16):
    """A causal model, whose embedding is also its last layer."""
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(
        n_positions=16, n_embd=width, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1,
        **SIZES, **drops,
    )  # fmt: skip
    return described(GPT2LMHeadModel(config), Sentences(texts), padded, eval_dataset=Sentences(5))


def bert():
    return described(BertForMaskedLM(BertConfig(**SIZES, **BERT)), Sentences(13), padded)


def t5():
    config = T5Config(
        d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0, **SIZES,
    )  # fmt: skip
    return described(T5ForConditionalGeneration(config), Sentences(13), padded)


class Labelled(Sentences):
    def __getitem__(self, index: int):
        return super().__getitem__(index), index % 3


def with_classes(samples):
    batch = padded([tokens for tokens, _ in samples])
    return batch | {"labels": torch.tensor([target for _, target in samples])}


def classifier():
    model = BertForSequenceClassification(BertConfig(num_labels=3, **SIZES, **BERT))
    return described(model, Labelled(13), with_classes)


def plain():
    """No more than the three that are needed."""
    return BertForMaskedLM(BertConfig(**SIZES, **BERT)), Sentences(13), padded


class Rows(Pictures):
    """As tables of tutorials are: with columns that no model has an argument for."""

    def __getitem__(self, index: int):
        columns = {"sentence1": "a text", "idx": index, "label": index % 3}
        return columns | {"input_ids": [1, 2, index % 11], "attention_mask": [1, 1, 1]}


def table():
    return {"model": classifier()["model"], "train_dataset": Rows(13)}


def with_texts(samples):
    return {"texts": [sample["sentence1"] for sample in samples]}


def whole_table():
    return table() | {"data_collator": with_texts, "remove_unused_columns": False}


def without_labels(samples):
    return {key: value for key, value in padded(samples).items() if key != "labels"}


def unlabelled():
    return described(bert()["model"], Sentences(13), without_labels)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(Pictures(3))


def streamed():
    return described(bert()["model"], Stream(), padded)


def splits():
    return described(bert()["model"], {"train": Sentences(13), "test": Sentences(5)}, padded)


def misspelt():
    return {"model": bert()["model"], "dataset": Sentences(13)}


def below_one():
    return described(bert()["model"], Sentences(13), padded, batch_size=-8)


def still():
    return described(bert()["model"], Sentences(13), padded, max_gradient_norm=0)


def nothing():
    return None
