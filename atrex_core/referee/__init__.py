"""The trusted process on the device: seeds, inputs, expected outputs, the clock, the verdicts."""
