# SPDX-License-Identifier: Apache-2.0
"""The Python module over libverge-c. VERGE_C_LIBRARY says where the library is."""

import asyncio
import select
import threading
import time
import unittest

import verge


class Timers(unittest.TestCase):
    def test_a_timer_calls_once_and_not_early(self):
        called = threading.Event()
        start = verge.now_ns()
        with verge.after(0.002, called.set) as timer:
            called.wait()
            self.assertGreaterEqual(verge.now_ns() - start, 2_000_000)
            self.assertFalse(timer.stop())

    def test_a_stopped_timer_is_not_called_and_frees_its_callable(self):
        timer = verge.after(3600, self.fail)
        self.assertEqual(len(verge._callables), 1)
        self.assertTrue(timer.stop())
        self.assertFalse(timer.stop())
        timer.close()
        self.assertEqual(len(verge._callables), 0)
        timer.close()

    def test_a_ticker_ticks(self):
        ticks = threading.Semaphore(0)
        with verge.every(0.001, ticks.release):
            for _ in range(3):
                ticks.acquire()

    def test_misuse_raises_with_an_explanation(self):
        with self.assertRaisesRegex(verge.Error, "period is not positive"):
            verge.every(0, print)
        with self.assertRaises(TypeError):
            verge.after(1, "not a function")
        self.assertEqual(len(verge._callables), 0)

    def test_any_number_of_seconds(self):
        for forever in (1e300, float("inf"), 10**30):
            with verge.after(forever, self.fail) as timer:
                self.assertTrue(timer.stop())
        for past in (-1e300, float("-inf"), float("nan"), 0):
            called = threading.Event()
            with verge.after(past, called.set):
                called.wait()

    def test_a_day_of_simulated_time(self):
        calls = []
        with verge.Simulation(seed=7) as simulation:
            ticker = verge.every(3600, lambda: calls.append(verge.now()))
            simulation.run_for(24 * 3600)
            ticker.close()
        self.assertEqual(len(calls), 24)
        self.assertEqual(calls[1] - calls[0], 3600)


class Queues(unittest.TestCase):
    def test_calls_in_order_what_is_due(self):
        queue = verge.Queue()
        called = []
        for name, when in (("c", 3), ("a", 1), ("stopped", 2), ("b", 2)):
            timer = queue.start_at_ns(when, called.append, name)
            if name == "stopped":
                self.assertTrue(queue.stop(timer))
        self.assertEqual(queue.next_ns(), 1)
        later = queue.start(3600, self.fail)
        self.assertTrue(queue.reset(later, 7200))
        self.assertEqual(queue.run(), 3)
        self.assertEqual(called, ["a", "b", "c"])
        self.assertEqual(len(queue), 1)
        queue.close()
        self.assertEqual(len(verge._callables), 0)

    def test_a_hundred_thousand_from_other_threads_are_never_early(self):
        queue = verge.Queue()
        count, early = 0, 0

        def call(due):
            nonlocal count, early
            count += 1
            early += verge.now_ns() < due

        def start(user):
            for i in range(user, 100_000, 3):
                due = verge.now_ns() + (i * 7919) % 40_000_000
                queue.start_at_ns(due, call, due)

        users = [threading.Thread(target=start, args=(user,)) for user in range(3)]
        for user in users:
            user.start()
        while count < 100_000:
            select.select([queue], [], [])
            queue.run()
        for user in users:
            user.join()
        self.assertEqual(early, 0)
        self.assertEqual(len(queue), 0)


class Asyncio(unittest.TestCase):
    def run_loop(self, coroutine):
        with asyncio.Runner(loop_factory=verge.EventLoop) as runner:
            return runner.run(coroutine)

    def test_sleeps_in_order_and_never_early(self):
        order = []

        async def nap(seconds):
            loop = asyncio.get_running_loop()
            start = loop.time()
            await asyncio.sleep(seconds)
            self.assertGreaterEqual(loop.time(), start + seconds)
            order.append(seconds)

        async def main():
            await asyncio.gather(*(nap(s) for s in (0.03, 0.01, 0.02)))

        self.run_loop(main())
        self.assertEqual(order, [0.01, 0.02, 0.03])

    def test_a_cancelled_timer_is_not_called_even_if_it_is_due_in_the_same_turn(self):
        async def main():
            loop = asyncio.get_running_loop()
            second = loop.call_at(loop.time() + 0.002, self.fail)
            loop.call_at(second.when() - 0.001, second.cancel)
            time.sleep(0.005)
            await asyncio.sleep(0.002)
            self.assertTrue(second.cancelled())

        self.run_loop(main())

    def test_time_outs_leave_nothing_behind(self):
        async def main():
            for _ in range(1000):
                async with asyncio.timeout(3600):
                    await asyncio.sleep(0)
            return len(asyncio.get_running_loop()._verge_queue)

        self.assertEqual(self.run_loop(main()), 0)

    def test_call_later_from_another_thread_wakes_the_loop(self):
        async def main():
            loop = asyncio.get_running_loop()
            done = loop.create_future()
            other = threading.Thread(
                target=lambda: loop.call_later(0.001, done.set_result, "woken"))
            other.start()
            self.assertEqual(await done, "woken")
            other.join()

        self.run_loop(main())


if __name__ == "__main__":
    unittest.main()
