"""What the log shows of training: sums over the steps since it was last read."""

from time import perf_counter

import torch

from model.flops import peak_flops_per_s
from model.trainer import Trainer, Update, perplexity


class Meter:
    """Counts steps and their time. All workers read it at the same steps."""

    def __init__(self, trainer: Trainer) -> None:
        self._workers = trainer.workers
        dtype = torch.bfloat16 if trainer.config.precision == "bf16" else torch.float32
        self._peak = peak_flops_per_s(trainer.optimizer.values_P.device, dtype)
        self._start_anew()

    def start_clock(self) -> None:
        """Start the time of a step: what was done since the last one does not count."""
        self._started_at_s = perf_counter()

    def add(self, update: Update) -> None:
        """Count a step and the time it took."""
        self._updates.append(update)
        self._took_s += perf_counter() - self._started_at_s

    def read(self) -> dict[str, float]:
        """Sum over steps, workers and micro-batches in the order of the plan, and start anew.

        Losses are per target token, of the steps that were not skipped. The utilisation is that of
        all workers' devices together. Workers meet here.
        """
        taken = [update for update in self._updates if not update.skipped]
        metrics = {"skipped_steps": float(len(self._updates) - len(taken))}
        if taken:
            sums = self._workers.gather(torch.stack([update.sums for update in taken]))
            in_order = sums.transpose(0, 1).flatten(0, 2)
            loss, nll, num_target, num_tokens, num_positions, flops = in_order.sum(0).tolist()
            metrics |= {
                "loss": loss / num_target,
                "nll": nll / num_target,
                "perplexity": perplexity(nll / num_target),
                "learning_rate": taken[-1].learning_rate,
                "gradient_norm": taken[-1].gradient_norm,
                "padding_share": 1 - num_tokens / num_positions,
                "tokens_per_s": num_tokens / self._took_s,
                "flop_utilisation": flops / self._took_s / (self._peak * self._workers.size),
            }
        self._start_anew()
        return metrics

    def _start_anew(self) -> None:
        self._updates: list[Update] = []
        self._took_s = 0.0
        self.start_clock()
