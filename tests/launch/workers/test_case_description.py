"""What is said of a use case before anything is planned."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import tiny_cases
import torch
from described_cases import described, refusal
from torch.nn import functional

from launch.description.case_digest import digest_case
from launch.errors import CheckpointError, UseCaseError
from launch.plan import Plan
from launch.reports import Warned
from launch.use_cases._adapter import adapt_use_case
from launch.workers import case_description


def test_a_model_with_batch_norm_is_warned_of_parts_on_hosts_replicas_and_micro_batches():
    (warned,) = [said for said in described(tiny_cases.Normed) if isinstance(said, Warned)]
    assert "every host, replica and micro-batch applies to its own part" in warned.message
    assert "one host with replicas=1 and micro_batches=1" in warned.message


def test_a_model_without_batch_norm_is_not():
    assert not [said for said in described(tiny_cases.Sgd) if isinstance(said, Warned)]


class MadeUp(tiny_cases.Sgd):
    def dataset(self, data, *, train: bool):
        dataset = super().dataset(data, train=train)
        dataset.is_generated = True
        return dataset


def test_data_that_are_made_up_are_known_as_such():
    assert described(MadeUp)[-1].facts.is_generated
    assert not described(tiny_cases.Sgd)[-1].facts.is_generated


class ReadsFiles(tiny_cases.Sgd):
    def dataset(self, data, *, train: bool):
        return sorted((data / "train").iterdir())


def test_use_case_that_reads_data_says_so_where_none_are_named():
    """The story: `launch --plan` of a plan that was imported ended in the TypeError alone."""
    line = r"TypeError: .*'NoneType' and 'str' \(/.*/test_case_description\.py, line \d+\)"
    said = f"^ReadsFiles fails without data, {line}: name them with --data, if it reads some$"
    with pytest.raises(UseCaseError, match=said):
        described(ReadsFiles)


def test_other_settings_make_another_use_case():
    case = adapt_use_case(tiny_cases.Sgd, "tiny")
    model, datasets = case.model(), [case.dataset(None, train=train) for train in (True, False)]
    digests = {
        digest_case(case, model, datasets, settings)
        for settings in ((), (("lr", "1"),), (("lr", "2"),), (("lr", "1"), ("width", "2")))
    }
    assert len(digests) == 4
    assert digest_case(case, model, datasets) in digests


def test_kernels_that_torch_has_compiled_are_no_code_of_a_use_case(tmp_path, monkeypatch):
    """Another processor has other ones: hosts would have another use case each."""
    case = adapt_use_case(tiny_cases.Sgd, "tiny")
    model, datasets = case.model(), [case.dataset(None, train=train) for train in (True, False)]
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    before = digest_case(case, model, datasets)
    kernel = ModuleType("torch._inductor.runtime.compile_tasks.cab")
    kernel.__file__ = str(tmp_path / "cab.py")
    (tmp_path / "cab.py").touch()
    monkeypatch.setitem(sys.modules, kernel.__name__, kernel)
    assert digest_case(case, model, datasets) == before
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert digest_case(case, model, datasets) != before


def test_all_passes_before_the_search_have_the_cores_that_may_be_used(monkeypatch):
    """The first ones had a single core, and the last ones more than a quota grants."""
    threads = set()

    class NotesThreads(tiny_cases.Sgd):
        def step(self, model, batch):
            threads.add(torch.get_num_threads())
            return super().step(model, batch)

    monkeypatch.setattr(case_description, "read_cpu", lambda: SimpleNamespace(usable_cores=3))
    assert described(NotesThreads)
    assert threads == {3}


class Lookalikes:
    name = "tiny"
    batch_size = 4
    model, dataset = tiny_cases.Sgd.model, tiny_cases.Sgd.dataset
    loss, optimizer = tiny_cases.Sgd.loss, tiny_cases.Sgd.optimizer
    collate_fn = staticmethod(list)

    def training_step(self, batch):
        return 0

    def schedul(self, optimizer, steps_per_epoch):
        return None

    def sample(self):
        return 0


def test_a_method_that_looks_like_one_of_the_contract_is_named():
    said = [said.message for said in described(Lookalikes) if isinstance(said, Warned)]
    assert said == [
        "batch_size of Lookalikes is never used: is default_batch meant?",
        "collate_fn of Lookalikes is never used: is collate meant?",
        "schedul of Lookalikes is never used: is schedule meant?",
        "training_step of Lookalikes is never used: is step meant?",
    ]


def test_state_that_no_file_can_hold_is_refused_before_the_search():
    """The story: a plan was found for hours, and then `launch` refused the model."""
    with pytest.raises(CheckpointError, match=r"state\['1._extra_state'\]\['calls'\] is a object"):
        described(tiny_cases.Unsaveable)


class Graph(tiny_cases.Sgd):
    is_saved = False

    def model(self):
        model = super().model()
        neighbours = torch.eye(16).to_sparse()
        model[5].register_buffer("neighbours", neighbours, persistent=self.is_saved)
        return model


class SavedGraph(Graph):
    is_saved = True


@pytest.mark.parametrize("case", [Graph, SavedGraph])
def test_a_sparse_buffer_is_refused_with_what_to_keep_in_its_place(case):
    """The story: a matrix of neighbours ended in torch's words on what sparse tensors lack."""
    said = refusal(case)
    assert said.startswith(f"buffer '5.neighbours' of the model of {case.__name__} is a tensor of")
    assert said.endswith("keep its indices and values as buffers, and make it of them in forward()")


class ManySteps(tiny_cases.Sgd):
    def optimizer(self, parameters):
        return torch.optim.LBFGS(parameters)


def test_an_optimizer_that_evaluates_the_model_by_itself_is_refused_before_the_search():
    with pytest.raises(UseCaseError, match=r"optimizer LBFGS .*'closure'.*: use"):
        described(ManySteps)


class BecameSum(tiny_cases.Sgd):
    def loss(self, output, target):
        return functional.cross_entropy(output, target, reduction="sum")


PLAN = Plan(strategy="sequential", node_batch=8)


def test_loss_of_a_use_case_that_was_changed_since_its_plan_was_found_is_checked_again():
    """The story: a mean was made a sum after the search, and ``launch`` trained it with the stored
    plan: other weights with each plan, without an error."""
    digest = described(tiny_cases.Sgd)[-1].facts.digest
    with pytest.raises(UseCaseError, match="It is a sum: return the mean"):
        described(BecameSum, plan=PLAN, case_digests=(digest,))


def test_loss_of_a_use_case_that_its_plan_was_found_with_is_not_checked_again():
    """It takes the time of some steps, before each launch."""
    digest = described(BecameSum, plan=PLAN)[-1].facts.digest
    assert described(BecameSum, plan=PLAN, case_digests=("sha256:0", digest))[-1].facts


def test_use_case_that_is_described_once_more_for_its_times_is_not_checked_again():
    """The story: a search whose budget was refused had paid for the check of the loss twice."""
    digest = described(BecameSum, plan=PLAN)[-1].facts.digest
    assert described(BecameSum, case_digests=(digest,))[-1].facts.sample_s > 0
    with pytest.raises(UseCaseError, match="It is a sum: return the mean"):
        described(BecameSum, case_digests=("sha256:0",))


def test_a_launch_waits_for_no_times_that_only_a_search_needs():
    """Passes on a CPU, of a model for GPUs too, and readings were timed before each one."""
    searched, launched = described(tiny_cases.Sgd)[-1], described(tiny_cases.Sgd, plan=PLAN)[-1]
    assert searched.facts.sample_s > 0
    assert searched.facts.read_s > 0
    assert (launched.facts.sample_s, launched.facts.read_s) == (0.0, None)
    assert launched.facts.digest == searched.facts.digest
