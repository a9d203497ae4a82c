"""What is drawn for people."""

from pathlib import Path

from pipeline.artifact import Json


def plot_curve(curve: Json, path: Path) -> None:
    """BLEU over training steps, a line for each test set, with the 95 % interval about it.

    Args:
        curve: By set, in order of steps: `step`, and `bleu` with `score`, `low`, `high`, `label`.
        path: Of an SVG file.
    """
    from matplotlib import rc_context  # noqa: PLC0415 - slow to load, and only for this
    from matplotlib.figure import Figure  # noqa: PLC0415 - likewise

    with rc_context(
        {"svg.hashsalt": "traduko", "svg.fonttype": "none"}
    ):  # the same bytes each time
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot(xlabel="training steps", ylabel=_label(curve))
        for name, points in curve.items():
            steps = [point["step"] for point in points]
            scores = {
                key: [point["bleu"][key] for point in points] for key in ("score", "low", "high")
            }
            [line] = axes.plot(steps, scores["score"], marker="o", label=name)
            axes.fill_between(
                steps, scores["low"], scores["high"], alpha=0.15, color=line.get_color()
            )
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _label(curve: Json) -> str:
    labels = {point["bleu"]["label"] for points in curve.values() for point in points}
    return ", ".join(sorted(labels)) or "BLEU"
