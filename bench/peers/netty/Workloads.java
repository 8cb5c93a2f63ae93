import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

/**
 * The workloads, on a wheel of 65,536 ticks of 1 ms: its documentation wants a larger wheel for many
 * time-outs, and in this one every deadline is on the first round. There is no reset: a time-out is
 * cancelled and a new one made.
 */
final class Workloads {
  private static final long MILLISECOND = 1_000_000;
  private static final long SECOND = 1_000_000_000;
  private static final long IDLE = 500 * MILLISECOND;
  private static final long DEADLINE = 50 * MILLISECOND;
  private static final int LOST = 100;
  private static final int TURN = 1024;

  private final Peer.Request request;
  private final LongAdder fired = new LongAdder();
  private final TimerTask count = t -> fired.increment();
  private final HashedWheelTimer timer =
      new HashedWheelTimer(
          new DefaultThreadFactory("timer", true), 1, TimeUnit.MILLISECONDS, 65_536, false);

  private Workloads(Peer.Request r) {
    request = r;
  }

  static Map<String, Object> run(Peer.Request r) throws Exception {
    Workloads w = new Workloads(r);
    w.timer.start();
    try {
      return w.measure();
    } finally {
      w.timer.stop();
    }
  }

  private Map<String, Object> measure() throws Exception {
    return switch (request.workload()) {
      case "start_stop" -> throughput(Lane::startStop);
      case "reset_later" -> throughput(l -> l.reset(61 * SECOND));
      case "reset_back_forth" -> throughput(l -> l.reset(l.random.delay()));
      case "idle_connections" -> idleConnections();
      case "rpc_deadlines" -> rpcDeadlines();
      case "fill" -> fill();
      case "memory" -> memory();
      case "fire" -> fire();
      case "two_threads" -> twoThreads();
      case "dense_10k", "dense_100k" -> dense();
      case "lateness_idle", "lateness_busy" -> lateness(0);
      case "lateness_100k" -> lateness(request.timers());
      default -> throw new IllegalArgumentException("there is no workload " + request.workload());
    };
  }

  private interface Operation {
    void on(Lane lane);
  }

  /** What one thread has: time-outs of its own. */
  private final class Lane {
    final Measure.Random random;
    final Timeout[] timeouts;
    int calls;

    Lane(int n, long seed) {
      random = new Measure.Random(seed);
      timeouts = new Timeout[n];
    }

    Timeout start(long delay) {
      return timer.newTimeout(count, delay, TimeUnit.NANOSECONDS);
    }

    void fill() {
      for (int i = 0; i < timeouts.length; ++i) timeouts[i] = start(random.delay());
    }

    int any() {
      return (int) random.below(timeouts.length);
    }

    void startStop() {
      int i = any();
      Timeout fresh = start(random.delay());
      timeouts[i].cancel();
      timeouts[i] = fresh;
    }

    void reset(long delay) {
      int i = any();
      timeouts[i].cancel();
      timeouts[i] = start(delay);
    }

    void call() {
      int oldest = calls % timeouts.length;
      if (++calls % LOST != 0) timeouts[oldest].cancel();
      timeouts[oldest] = start(DEADLINE);
    }
  }

  private long work(Lane l, Operation operation) {
    long end = System.nanoTime() + request.milliseconds() * MILLISECOND;
    long done = 0;
    while (done < request.timers() || System.nanoTime() < end) {
      for (int i = 0; i < TURN; ++i) operation.on(l);
      done += TURN;
    }
    return done;
  }

  private static long longestOf(Lane l, Operation operation, int operations) {
    long longest = 0;
    long before = System.nanoTime();
    for (int i = 0; i < operations; ++i) {
      operation.on(l);
      long after = System.nanoTime();
      longest = Math.max(longest, after - before);
      before = after;
    }
    return longest;
  }

  private Map<String, Object> measured(Lane l, Operation operation) throws Exception {
    long begin = Measure.processorTime();
    long done = work(l, operation);
    double took = Measure.processorTime() - begin;
    long longest = longestOf(l, operation, Math.max(request.timers(), 100_000));
    return Map.of("ns_per_op", took / done, "longest_ns", longest);
  }

  private Map<String, Object> throughput(Operation operation) throws Exception {
    Lane l = new Lane(request.timers(), request.seed());
    l.fill();
    for (int i = 0; i < request.timers(); ++i) operation.on(l);
    return measured(l, operation);
  }

  private Map<String, Object> idleConnections() throws Exception {
    Lane l = new Lane(request.timers(), request.seed());
    for (int i = 0; i < l.timeouts.length; ++i) l.timeouts[i] = l.start(IDLE);
    return measured(l, lane -> lane.reset(IDLE));
  }

  private Map<String, Object> rpcDeadlines() throws Exception {
    Lane l = new Lane(request.timers(), request.seed());
    for (int i = 0; i < l.timeouts.length; ++i) l.timeouts[i] = l.start(DEADLINE);
    return measured(l, Lane::call);
  }

  private Map<String, Object> fill() throws Exception {
    Lane l = new Lane(request.timers(), request.seed());
    long begin = Measure.processorTime();
    l.fill();
    Thread.sleep(20); // the timer's thread takes them up meanwhile
    double took = Measure.processorTime() - begin;
    return Map.of("ns_per_op", took / l.timeouts.length, "bytes_per_timer", bytesPerTimer(l));
  }

  private Map<String, Object> memory() throws Exception {
    Lane l = new Lane(request.timers(), request.seed());
    l.fill();
    for (int i = 0; i < 4 * request.timers(); ++i) l.startStop();
    return Map.of("bytes_per_timer", bytesPerTimer(l));
  }

  /** What the heap shrinks by when they are freed: what other workloads left is freed before. */
  private double bytesPerTimer(Lane l) throws InterruptedException {
    settle(l.timeouts.length);
    long live = Measure.heapBytes();
    for (int i = 0; i < l.timeouts.length; ++i) {
      l.timeouts[i].cancel();
      l.timeouts[i] = null;
    }
    settle(0);
    return (live - Measure.heapBytes()) / (double) l.timeouts.length;
  }

  /** Until the timer's thread has let go of what was cancelled: a million take it most of a second. */
  private void settle(int live) throws InterruptedException {
    while (timer.pendingTimeouts() > live) Thread.sleep(1);
  }

  private Map<String, Object> fire() throws Exception {
    int n = request.timers();
    Measure.Random random = new Measure.Random(request.seed());
    long first = System.nanoTime() + n * 3_000L + 100 * MILLISECOND;
    for (int i = 0; i < n; ++i) {
      long delay = first + random.within(SECOND) - System.nanoTime();
      timer.newTimeout(count, delay, TimeUnit.NANOSECONDS);
    }
    if (fired.sum() != 0) {
      throw new IllegalStateException("starting took so long that some have fired already");
    }
    long begin = Measure.processorTime();
    Measure.standStill(first + SECOND + 5 * MILLISECOND - System.nanoTime());
    while (fired.sum() < n) Thread.sleep(1);
    double took = Measure.processorTime() - begin;
    return Map.of("ns_per_op", took / n);
  }

  private Map<String, Object> dense() throws Exception {
    int n = (int) ((long) request.timers() * request.milliseconds() / 1000);
    long apart = SECOND / request.timers();
    Measure.Random random = new Measure.Random(request.seed());
    long first = System.nanoTime() + n * 3_000L + 100 * MILLISECOND;
    for (int i = 0; i < n; ++i) {
      long due = first + i * apart + random.within(apart);
      timer.newTimeout(count, due - System.nanoTime(), TimeUnit.NANOSECONDS);
    }
    if (fired.sum() != 0) {
      throw new IllegalStateException("starting took so long that some have fired already");
    }
    Thread.sleep(Math.max(0, (first - System.nanoTime()) / MILLISECOND - 1));
    long begin = Measure.processorTime();
    while (fired.sum() < n) Thread.sleep(20);
    double took = Measure.processorTime() - begin;
    return Map.of("ns_per_op", took / n);
  }

  private Map<String, Object> twoThreads() throws Exception {
    double[] rates = new double[request.threads()];
    Thread[] threads = new Thread[request.threads()];
    CyclicBarrier together = new CyclicBarrier(threads.length);
    for (int i = 0; i < threads.length; ++i) {
      int me = i;
      threads[i] = new Thread(() -> {
        Lane l = new Lane(request.timers(), request.seed() + me);
        l.fill();
        try {
          together.await();
        } catch (Exception e) {
          return;
        }
        for (int k = 0; k < request.timers(); ++k) l.startStop();
        long begin = System.nanoTime();
        long pairs = work(l, Lane::startStop);
        rates[me] = pairs * 1e9 / (System.nanoTime() - begin);
      });
      threads[i].start();
    }
    double sum = 0;
    for (int i = 0; i < threads.length; ++i) {
      threads[i].join();
      sum += rates[i];
    }
    return Map.of("ops_per_s", sum);
  }

  private Map<String, Object> lateness(int others) throws Exception {
    Lane live = new Lane(others, request.seed());
    for (int i = 0; i < others; ++i) {
      live.timeouts[i] = live.start(30 * SECOND + live.random.within(31 * SECOND));
    }
    int n = request.milliseconds();
    Measure.Random random = new Measure.Random(request.seed() + 1);
    long[] late = new long[n];
    CountDownLatch all = new CountDownLatch(n);
    long first = System.nanoTime() + 100 * MILLISECOND;
    for (int i = 0; i < n; ++i) {
      int sample = i;
      long due = first + i * MILLISECOND + random.within(MILLISECOND);
      timer.newTimeout(
          t -> {
            late[sample] = System.nanoTime() - due;
            all.countDown();
          },
          due - System.nanoTime(), TimeUnit.NANOSECONDS);
    }
    all.await();
    return Map.of("late_ns", late);
  }
}
