from dataclasses import replace

import pytest
import torch
from torch import nn

from model.config import TrainConfig
from model.optimizer import NUM_ASKS, FlatAdam

CONFIG = TrainConfig(micro_batches_per_step=4, adam_epsilon=1e-8)


def make_model(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    model[1].tied = model[0].weight  # one parameter, two names
    return model


def fill_gradients(parameters, number):
    for index, parameter in enumerate(parameters):
        values = torch.arange(parameter.numel(), dtype=torch.float32) - 2.5
        parameter.grad.copy_((values * (index + number)).view(parameter.shape))


def test_parameters_and_gradients_are_views_that_keep_their_values():
    untouched, model = make_model(), make_model()
    flat = FlatAdam(model, CONFIG)
    for left, right in zip(model.parameters(), untouched.parameters(), strict=True):
        assert torch.equal(left, right)
    flat.values_P.fill_(7)
    assert all((parameter == 7).all() for parameter in model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    assert model[0].weight.grad.flatten().tolist() == flat.gradient_P[:6].tolist() != [0] * 6


def test_a_shared_parameter_is_there_once():
    flat = FlatAdam(make_model(), CONFIG)
    assert flat.layout == ["0.weight [2, 3]", "0.bias [2]", "1.weight [1, 2]", "1.bias [1]"]
    assert flat.moments()["exp_avg"].shape == (11,)


@pytest.mark.parametrize("micro_batches", [1, 4, 16])
def test_the_row_can_be_cut_in_equal_chunks(micro_batches):
    flat = FlatAdam(make_model(), replace(CONFIG, micro_batches_per_step=micro_batches))
    assert len(flat.values_P) == len(flat.gradient_P)
    assert len(flat.values_P) % micro_batches == 0
    assert 0 <= len(flat.values_P) - 11 - NUM_ASKS < micro_batches


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_updates_equal_those_of_plain_adam(weight_decay):
    plain, model = make_model(), make_model()
    flat = FlatAdam(model, replace(CONFIG, weight_decay=weight_decay))
    kind = torch.optim.AdamW if weight_decay else torch.optim.Adam
    adam = kind(plain.parameters(), lr=0.1, betas=(0.9, 0.98), eps=1e-8, weight_decay=weight_decay)
    for parameter in plain.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for number in range(1, 4):
        fill_gradients(plain.parameters(), number)
        fill_gradients(model.parameters(), number)
        adam.step()
        flat.update(0.1)
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(left, right, atol=1e-6)
    assert flat.moments()["step"].item() == 3


def test_what_is_loaded_goes_on_as_what_was_saved():
    first, second = FlatAdam(make_model(), CONFIG), FlatAdam(make_model(1), CONFIG)
    fill_gradients(first.named.values(), 1)
    first.update(0.1)
    second.load(first.named, first.moments())
    for flat in (first, second):
        fill_gradients(flat.named.values(), 2)
        flat.update(0.1)
    for left, right in zip(first.whole_state(), second.whole_state(), strict=True):
        assert torch.equal(left, right)


def test_weights_may_come_without_moments():
    flat = FlatAdam(make_model(), CONFIG)
    flat.load(FlatAdam(make_model(1), CONFIG).named, {})
    assert torch.equal(flat.named["0.bias"], make_model(1)[0].bias)
    assert flat.moments()["step"] == 0
