"""Trainings with ``--amp``."""

from fairseq.optim.amp_optimizer import AMPOptimizer

from . import replaces


@replaces(AMPOptimizer, "step")
def step(theirs, self) -> None:
    """fairseq divides gradients by the loss scale of --amp for clipping, and again in the step.

    Lost: the right step, as Adam's epsilon outweighed the gradients.
    """
    self.scaler.step(self.optimizer)  # torch notes by optimizer what it has divided; fairseq's wrapper is another
    self.scaler.update()
