"""Trainings with ``--amp``."""

from fairseq.optim.amp_optimizer import AMPOptimizer

from . import replaces


@replaces(AMPOptimizer, "step")
def step(theirs, self) -> None:
    """fairseq divides gradients by the loss scale of --amp twice: before clipping and again in the optimizer step.

    Lost: the optimizer step was wrong, as the gradients became small against Adam's epsilon.
    """
    self.scaler.step(self.optimizer)  # torch notes by optimizer what it has divided; fairseq's wrapper is another
    self.scaler.update()
