# SPDX-License-Identifier: Apache-2.0
"""verge's timers for Python, over libverge-c.

    import verge

    reminder = verge.after(180, lambda: print("Do you still want it?"))
    reminder.stop()                      # True: it was pending, and will never be called

    queue = verge.Queue()                # for an event loop: watch queue.fileno()
    queue.start(1.5, print, "closed")
    queue.run()                          # calls what is due

    asyncio.run(main(), loop_factory=verge.EventLoop)     # Python 3.12; before: new_event_loop

Times and durations are seconds, as in Python's own modules; a number of them is exact to the
nanosecond only as far as a float is, so verge.now_ns(), Queue.start_at_ns() and Queue.next_ns() have
integers.

Callbacks of after() and every() run on threads of verge's runtime. Those of a Queue run on the
thread that calls run(). The library is found as libverge-c.so, or where the environment variable
VERGE_C_LIBRARY says.
"""

import asyncio
import atexit
import ctypes
import itertools
import os

__all__ = ["after", "every", "now", "now_ns", "sleep", "version", "Error", "EventLoop", "Queue",
           "Simulation", "Timer"]

_c = ctypes.CDLL(os.environ.get("VERGE_C_LIBRARY", "libverge-c.so.0.1"))
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NEVER = 2**63 - 1


class _TimerOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("runtime", ctypes.c_void_p), ("slack", ctypes.c_int64),
                ("missed_ticks", ctypes.c_int), ("precise", ctypes.c_int)]


class _SimulationOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("seed", ctypes.c_uint64), ("start", ctypes.c_int64)]


def _declare(name, result, *arguments):
    function = getattr(_c, name)
    function.restype = result
    function.argtypes = arguments
    return function


_pointer = ctypes.POINTER(ctypes.c_void_p)
_start = (_pointer, ctypes.c_int64, _CALLBACK, ctypes.c_void_p, _CALLBACK,
          ctypes.POINTER(_TimerOptions))
_declare("verge_version", ctypes.c_char_p)
_declare("verge_strerror", ctypes.c_char_p, ctypes.c_int)
_declare("verge_now", ctypes.c_int64)
_declare("verge_sleep", ctypes.c_int, ctypes.c_int64)
_declare("verge_after", ctypes.c_int, *_start)
_declare("verge_every", ctypes.c_int, *_start)
_declare("verge_timer_stop", ctypes.c_int, ctypes.c_void_p)
_declare("verge_timer_reset", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_declare("verge_timer_free", None, ctypes.c_void_p)
_declare("verge_queue_new", ctypes.c_int, _pointer)
_declare("verge_queue_free", None, ctypes.c_void_p)
_declare("verge_queue_fd", ctypes.c_int, ctypes.c_void_p)
_declare("verge_queue_start", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, _CALLBACK,
         ctypes.c_void_p, _CALLBACK, ctypes.POINTER(ctypes.c_uint64))
_declare("verge_queue_stop", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)
_declare("verge_queue_reset", ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64)
_declare("verge_queue_next", ctypes.c_int64, ctypes.c_void_p)
_declare("verge_queue_size", ctypes.c_size_t, ctypes.c_void_p)
_declare("verge_queue_run", ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)
_declare("verge_simulation_new", ctypes.c_int, _pointer, ctypes.POINTER(_SimulationOptions))
_declare("verge_simulation_free", None, ctypes.c_void_p)
_declare("verge_simulation_run_for", ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)


class Error(OSError):
    """What libverge-c returned, with its explanation."""


def _checked(result):
    if result < 0:
        raise Error(-result, _c.verge_strerror(result).decode())
    return result


def _ns(seconds):
    """Nanoseconds, rounded up so that nothing is early, and within the range of the clock."""
    if seconds != seconds:
        return 0
    if seconds >= 2**63 / 1e9:
        return _NEVER
    if seconds <= -(2**63) / 1e9:
        return -(2**63)
    whole = int(seconds * 1_000_000_000)
    return whole + 1 if whole < seconds * 1_000_000_000 else whole


# What C holds is a number, under which the callable is kept until C says that it will not be called
# any more. Dictionary operations on whole entries are atomic in Python.
_callables = {}
_numbers = itertools.count(1)


@_CALLBACK
def _call(number):
    function, arguments = _callables[number]
    function(*arguments)


@_CALLBACK
def _destroy(number):
    del _callables[number]


def _keep(function, arguments):
    if not callable(function):
        raise TypeError(f"verge: {function!r} cannot be called")
    number = next(_numbers)
    _callables[number] = (function, arguments)
    return number


def version():
    return _c.verge_version().decode()


def now():
    """The time on verge's clock, which is that of time.monotonic(); simulated in a simulation."""
    return _c.verge_now() / 1e9


def now_ns():
    return _c.verge_now()


def sleep(seconds):
    _checked(_c.verge_sleep(_ns(seconds)))


_live = set()


class Timer:
    """A timer of after() or every(). It is stopped when it is closed, or no longer referenced."""

    def __init__(self, start, delay, function, arguments, slack, precise):
        self._handle = ctypes.c_void_p()
        options = _TimerOptions(ctypes.sizeof(_TimerOptions), None, _ns(slack), 0, int(precise))
        number = _keep(function, arguments)
        result = start(ctypes.byref(self._handle), delay, _call, number, _destroy,
                       ctypes.byref(options))
        if result < 0:
            del _callables[number]
        _checked(result)
        _live.add(self._handle.value)

    def stop(self):
        """Returns True if the timer was pending: it will not be called."""
        return _checked(_c.verge_timer_stop(self._handle)) == 1

    def reset(self, seconds):
        """Makes it fire in that time, or tick every so often. Returns True if it was pending."""
        return _checked(_c.verge_timer_reset(self._handle, _ns(seconds))) == 1

    def close(self):
        """Stops the timer, and waits for a call that is running on another thread."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle.value is not None and handle.value in _live:
            _live.discard(handle.value)
            _c.verge_timer_free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()


def after(seconds, function, *arguments, slack=0, precise=False):
    """Calls function(*arguments) once, on a thread of verge's runtime. With slack, in seconds, it may
    be that much later, together with others; a precise one is exact to about a microsecond, for some
    processor time."""
    return Timer(_c.verge_after, _ns(seconds), function, arguments, slack, precise)


def every(seconds, function, *arguments, precise=False):
    """Calls it every so often. The calls do not overlap."""
    return Timer(_c.verge_every, _ns(seconds), function, arguments, 0, precise)


@atexit.register
def _free_all():
    # A callback that begins while the interpreter ends would find it without its modules.
    while _live:
        _c.verge_timer_free(_live.pop())


class Queue:
    """Timers that an event loop calls. It watches fileno(), and calls run() when that is readable.
    Timers may be started and stopped on any thread; the loop wakes in time."""

    def __init__(self):
        self._handle = ctypes.c_void_p()
        _checked(_c.verge_queue_new(ctypes.byref(self._handle)))

    def fileno(self):
        return _checked(_c.verge_queue_fd(self._handle))

    def start(self, delay, function, *arguments):
        """Returns a number for stop() and reset()."""
        return self.start_at_ns(min(now_ns() + max(_ns(delay), 0), _NEVER), function, *arguments)

    def start_at_ns(self, when, function, *arguments):
        number = _keep(function, arguments)
        timer = ctypes.c_uint64()
        result = _c.verge_queue_start(self._handle, when, _call, number, _destroy,
                                      ctypes.byref(timer))
        if result < 0:
            del _callables[number]
        _checked(result)
        return timer.value

    def stop(self, timer):
        """Returns True if the timer was pending: it will not be called."""
        return _checked(_c.verge_queue_stop(self._handle, timer)) == 1

    def reset(self, timer, delay):
        when = min(now_ns() + max(_ns(delay), 0), _NEVER)
        return _checked(_c.verge_queue_reset(self._handle, timer, when)) == 1

    def next_ns(self):
        """When to call run() next; None if no timer is pending."""
        when = _c.verge_queue_next(self._handle)
        return None if when == _NEVER else when

    def run(self, at_most=2**64 - 1):
        """Calls what is due; returns how many were called. An exception of a callback is printed,
        and the others are called."""
        return _checked(_c.verge_queue_run(self._handle, at_most))

    def __len__(self):
        return _c.verge_queue_size(self._handle)

    def close(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        _c.verge_queue_free(handle)

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()


class Simulation:
    """Simulated time for this thread's after(), every(), now() and sleep(), until it is closed."""

    def __init__(self, seed=1):
        self._handle = ctypes.c_void_p()
        options = _SimulationOptions(ctypes.sizeof(_SimulationOptions), seed, 0)
        _checked(_c.verge_simulation_new(ctypes.byref(self._handle), ctypes.byref(options)))

    def run_for(self, seconds):
        _checked(_c.verge_simulation_run_for(self._handle, _ns(seconds)))

    def close(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        _c.verge_simulation_free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _TimerHandle(asyncio.TimerHandle):
    """A timer of the event loop, which is in verge's queue until it is called or cancelled."""

    _verge_timer = 0

    def cancel(self):
        if not self.cancelled():
            self._loop._verge_queue.stop(self._verge_timer)
        super().cancel()

    def _due(self):
        # As the loop's own timers: it runs in this turn, through the list of what is ready.
        if not self.cancelled():
            self._loop._ready.append(self)


class EventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with verge's queue behind call_later() and call_at(): cancelling takes
    constant time and leaves nothing behind, and timers are exact rather than rounded to the
    resolution of the clock. call_later() may be called from any thread."""

    def __init__(self, selector=None):
        super().__init__(selector)
        self._verge_queue = Queue()
        self.add_reader(self._verge_queue.fileno(), self._verge_queue.run)

    def time(self):
        return now()

    def call_at(self, when, callback, *args, context=None):
        self._check_closed()
        if not callable(callback):
            raise TypeError(f"verge: {callback!r} cannot be called")
        handle = _TimerHandle(when, callback, args, self, context)
        handle._verge_timer = self._verge_queue.start_at_ns(max(_ns(when), 1), handle._due)
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def close(self):
        if not self.is_closed():
            self.remove_reader(self._verge_queue.fileno())
            self._verge_queue.close()
        super().close()
