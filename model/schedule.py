"""The learning rate at a step."""


def learning_rate(step: int, dim: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Rise linearly for `warmup_steps`, then fall with the root of the step.

    Vaswani et al. (2017), equation 3. `step` counts from 1; `dim` is the width of the model.

    Raises:
        ValueError: If `step` is below 1.
    """
    if step < 1:
        raise ValueError(f"`step` must be at least 1, but is {step}.")
    return float(scale * dim**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
