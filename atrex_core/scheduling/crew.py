"""Several posts at work at once: a thread for each, and one reader of all that they tell.

The threads only talk to their referees. Plugins, the journal and results are the reader's.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence

from attrs import frozen

from atrex_core.errors import AtrexError
from atrex_core.model import Device, Gate, GateResult
from atrex_core.referee_process import RefereeLost
from atrex_core.scheduling.pool import Pool
from atrex_core.scheduling.post import Done, Post

_MOST_UNREAD = 2
"""Of a post's jobs, the one at hand included: who reads slowly finds little that is not read."""


@frozen
class Spoke:
    """A gate has spoken."""

    evaluation_id: str
    gate: Gate
    result: GateResult


@frozen
class LeftOut:
    """A device takes no part, or no longer."""

    device: Device
    error: AtrexError

    def __str__(self) -> str:
        return f"device {self.device.id!r} takes no part: {self.error}"

    @property
    def refusal(self) -> AtrexError:
        """The error that ends the run once the others have done everything."""
        return _LeftOutError(self)


class _LeftOutError(AtrexError):
    def __init__(self, left_out: LeftOut) -> None:
        super().__init__(str(left_out), hint=left_out.error.hint)
        self.exit_code = left_out.error.exit_code  # type: ignore[misc]  # per instance here


@frozen
class _Ended:
    """A thread's last word."""

    post: Post
    fault: BaseException | None
    """Of ours: nothing else may be raised there."""


Event = Spoke | Done | LeftOut


class Crew:
    """Posts that take work from one pool, none waiting for another, until nothing is left."""

    def __init__(self, posts: Sequence[Post], pool: Pool) -> None:
        """Name who works on what; nothing begins yet.

        Where there are fewer jobs than posts, the last posts only stand in for what is left out.
        """
        self._pool = pool
        self._idle = deque(posts)
        self._rooms = {post.device.id: _room() for post in posts}
        self._threads: list[threading.Thread] = []
        self._running: set[Post] = set()
        self._starting: set[Post] = set()
        self._events: deque[Event | _Ended] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_stopping = False

    def events(self) -> Iterator[Event]:
        """Work, and yield what happens. Each event is read before `stop` would return it.

        Ends with the last job: who is still starting then is not waited for.
        """
        for _ in range(min(len(self._idle), len(self._pool))):
            self._begin(self._idle.popleft())
        while self._is_awaited():
            self._bell.get()
            event = self._events[0]  # an interrupt must not lose it: it goes when it is read
            if isinstance(event, _Ended):
                self._running.discard(event.post)
                if event.fault is not None:
                    raise event.fault
            else:
                yield event
                if self._is_stopping:  # whoever read it has ended everything
                    return
            self._events.popleft()
            if isinstance(event, Done):
                self._rooms[event.device.id].put(None)
            elif isinstance(event, LeftOut) and self._idle and len(self._pool):
                self._begin(self._idle.popleft())

    def stop(self) -> Sequence[Event]:
        """End whoever is still at work; return what nobody has read. Safe to call twice."""
        self._is_stopping = True
        self._pool.close()
        for post in self._running:
            post.end()
        for room in self._rooms.values():
            room.put(None)
        try:
            for thread in self._threads:
                if thread.ident is not None:  # else the system had none left
                    thread.join()
        except BaseException:  # Ctrl-C again
            for post in self._running:
                post.kill()
            raise
        for post in self._running:
            post.drop()
        unread = [event for event in self._events if not isinstance(event, _Ended)]
        self._events.clear()
        self._running.clear()
        return unread

    def _begin(self, post: Post) -> None:
        thread = threading.Thread(target=self._work, args=(post,), name=post.device.id, daemon=True)
        self._running.add(post)
        self._threads.append(thread)
        thread.start()

    def _is_awaited(self) -> bool:
        at_work = self._running - self._starting
        return bool(at_work) or (bool(self._running) and len(self._pool) > 0)

    def _work(self, post: Post) -> None:
        fault = None
        try:
            while self._goes_on(post) and (job := self._pool.take(post)) is not None:
                done = post.work(job, self._hear)
                if not (self._is_stopping and isinstance(done.found, RefereeLost)):
                    self._tell(done)
        except AtrexError as error:
            self._tell(LeftOut(post.device, error))
        except BaseException as error:  # noqa: BLE001  (a fault of ours: the reader raises it)
            fault = error
        finally:
            self._pool.leave(post)
            self._tell(_Ended(post, fault))

    def _goes_on(self, post: Post) -> bool:
        """Wait until this post may have another job, and have a referee for it."""
        self._rooms[post.device.id].get()
        if self._is_stopping or not len(self._pool):
            return False
        if not post.is_ready:
            self._starting.add(post)
            try:
                post.make_ready()
            finally:
                self._starting.discard(post)
        return not self._is_stopping

    def _hear(self, evaluation_id: str, gate: Gate, result: GateResult) -> None:
        self._tell(Spoke(evaluation_id, gate, result))

    def _tell(self, event: Event | _Ended) -> None:
        self._events.append(event)
        self._bell.put(None)


def _room() -> queue.SimpleQueue[None]:
    """Return what a post takes one item from for each job, and is given one for each job read.

    As the bell, it is no lock: an interrupt in the wrong place would leave that locked.
    """
    room: queue.SimpleQueue[None] = queue.SimpleQueue()
    for _ in range(_MOST_UNREAD):
        room.put(None)
    return room
