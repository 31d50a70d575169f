"""A kernel that keeps a device busy until the host says go, so that a queue fills up behind it.

Its grid fills every multiprocessor to the last thread. That holds back kernels on *all*
streams, not only its own: work that a candidate puts on another stream cannot run before the
clock starts. A copy engine is not held back.
"""

from __future__ import annotations

from typing import Final

from atrex_accelerator_common.driver import HostWord

from atrex_accelerator_cuda.driver import Driver, Kernel

THREADS: Final = 512
"""Divides the thread capacity of every multiprocessor built so far (1024, 1536, 2048)."""

NAME: Final = "atrex_hold"

# One thread of each block waits. Block 0 reads the host's word, across the bus; the others read
# a word in device memory that block 0 sets when it leaves, so that the bus stays quiet. Each
# gives up after `limit_ns`, since the host may be gone, or be waiting for us.
PTX: Final = f"""\
.version 7.0
.target sm_70
.address_size 64

.visible .entry {NAME}(
    .param .u64 host_word,
    .param .u64 gate_word,
    .param .u64 limit_ns,
    .param .u32 epoch
)
.maxntid {THREADS}, 1, 1
{{
    .reg .pred  %p_waits, %p_follows, %p_open, %p_late;
    .reg .u32   %r_thread, %r_block, %r_epoch, %r_seen;
    .reg .u64   %d_host, %d_gate, %d_word, %d_limit, %d_start, %d_now;

    mov.u32         %r_thread, %tid.x;
    setp.eq.u32     %p_waits, %r_thread, 0;
    @!%p_waits bra  LEAVE;

    ld.param.u64    %d_host, [host_word];
    ld.param.u64    %d_gate, [gate_word];
    ld.param.u64    %d_limit, [limit_ns];
    ld.param.u32    %r_epoch, [epoch];
    mov.u32         %r_block, %ctaid.x;
    setp.ne.u32     %p_follows, %r_block, 0;
    selp.u64        %d_word, %d_gate, %d_host, %p_follows;
    mov.u64         %d_start, %globaltimer;

WAIT:
    ld.relaxed.sys.global.u32 %r_seen, [%d_word];
    setp.ge.u32     %p_open, %r_seen, %r_epoch;
    @%p_open bra    GO;
    mov.u64         %d_now, %globaltimer;
    sub.u64         %d_now, %d_now, %d_start;
    setp.gt.u64     %p_late, %d_now, %d_limit;
    @%p_late bra    GO;
    nanosleep.u32   500;
    bra             WAIT;

GO:
    @%p_follows bra LEAVE;
    st.relaxed.sys.global.u32 [%d_gate], %r_epoch;

LEAVE:
    barrier.sync    0;
    ret;
}}
"""


class Hold:
    """One kernel, one host word, one device word, used again and again."""

    def __init__(self, driver: Driver, *, multiprocessors: int, threads_each: int) -> None:
        """Load the kernel.

        Raises:
            CudaError: the driver cannot build it.
        """
        self._driver = driver
        self._kernel: Kernel = driver.load_kernel(PTX, NAME)
        self._host: HostWord = driver.host_word()
        self._gate: int = driver.device_word()
        self._blocks = multiprocessors * max(1, threads_each // THREADS)
        self._epoch = 0

    def start(self, stream: int, limit_s: float) -> None:
        """Enqueue the kernel on `stream`. It ends at `release`, or after `limit_s` regardless."""
        self._epoch += 1
        self._driver.launch(
            self._kernel,
            blocks=self._blocks,
            threads=THREADS,
            stream=stream,
            words64=(self._host.device_address, self._gate, round(limit_s * 1e9)),
            words32=(self._epoch,),
        )

    def release(self) -> None:
        """Let the kernel end."""
        self._host.write(self._epoch)
