"""Trains a small model for so many seconds and prints its updates a second: one of several that share a device."""

import sys
import time

import torch

sys.path.insert(0, __file__.rpartition("/gpu_kit/")[0])
from gpu_kit.kit import Kit, batch, model
from scalesearch.train.hardware import Hardware
from scalesearch.train.updates.engine import Engine


def main(seconds: float) -> None:
    """Counts updates after a warm-up and the end of the input, with a wait for the device every tenth."""
    kit = Kit(folder=None)
    recipe = kit.recipe(precision="auto")
    engine = Engine(model("small/plain").to(kit.device).train(), recipe,
                    Hardware.from_recipe(recipe))
    given = batch(64, 32)
    for _ in range(5):
        engine.update([given], 1e-4)
    kit.wait()
    print("ready", flush=True)
    sys.stdin.read()
    start = time.perf_counter()
    count = 0
    while time.perf_counter() - start < seconds:
        loss = engine.update([given], 1e-4)
        count += 1
        if count % 10 == 0:
            loss.item()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(count / (time.perf_counter() - start))


if __name__ == "__main__":
    main(float(sys.argv[1]))
