"""A stand-in for an absent GPU: kernels are compiled for it and executed on the CPU.

Everything here imports triton when it is imported, so import it late.

A launch on a virtual device takes triton's own path: specialisation, compilation for the
target, the target's limits, the hooks. Only the last step differs: instead of the binary, the
syntax tree that was compiled is executed by triton's interpreter classes with their arithmetic
repaired. What follows the hardware: every dtype's rounding, masks, atomics, integer wrap-around,
tf32 operands of `tl.dot`, and out-of-bounds accesses, which raise instead of corrupting memory.

Not emulated:
    - `torch.cuda`: tensors are CPU tensors, `x.is_cuda` is False, and `device="cuda"` fails.
      `triton.runtime.driver.active` answers for the target.
    - Concurrency: programs run one after another, x fastest. A kernel that waits for a program
      with a higher index never returns; races between programs stay hidden.
    - Fused multiply-add contraction, approximate division and transcendental functions: each
      operation rounds once, correctly or to within an ulp.
    - Inline assembly, Gluon, and pointers read from memory (only launch arguments are known to
      the bounds check).
    - Time. Autotuning takes the first configuration that compiles and fits.
"""
