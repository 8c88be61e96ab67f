"""Methods that are a use case's own, and those that leave all to the contract."""

from __future__ import annotations

from torch.optim.lr_scheduler import ConstantLR

from launch.description.contract_use import find_own_methods
from launch.use_cases._base import UseCase


class Draft(UseCase):
    def schedule(self, optimizer, steps_per_epoch, epochs):
        """As ``ddlplan init`` writes it where the script steps it once per epoch."""
        return None  # noqa: RET501


class Filled(Draft):
    def schedule(self, optimizer, steps_per_epoch, epochs):
        return ConstantLR(optimizer)


def test_method_that_does_what_the_default_does_is_none_of_its_own():
    """A draft's ``schedule``, which is left to do, was listed as the user's."""
    assert find_own_methods(Draft()) == ()
    assert find_own_methods(Filled()) == ("schedule",)
