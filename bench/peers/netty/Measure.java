import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Clocks, memory and random deadlines. */
final class Measure {
  private Measure() {}

  /** What each thread had used when it was last seen. */
  private static final Map<Path, Long> used = new HashMap<>();

  /**
   * What all threads of this process have used, the collector's and the compiler's too. The platform's
   * own function counts in steps of 10 ms. A thread that has ended is not listed any more: what it had
   * used still counts, or time would go back.
   */
  static synchronized long processorTime() throws IOException {
    try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path thread : threads) {
        try {
          String text = Files.readString(thread.resolve("schedstat"));
          used.merge(thread, Long.parseLong(text.substring(0, text.indexOf(' '))), Math::max);
        } catch (IOException gone) {
          // a thread that has ended meanwhile
        }
      }
    }
    return used.values().stream().mapToLong(Long::longValue).sum();
  }

  /** The live heap. */
  static long heapBytes() throws InterruptedException {
    Thread.sleep(20); // what was handed to the timer's thread has arrived
    System.gc();
    System.gc();
    return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
  }

  /**
   * Stops the whole process for so long: what becomes due meanwhile is overdue when it continues. A
   * child does it, as a stopped process cannot continue itself.
   */
  static void standStill(long ns) throws IOException, InterruptedException {
    long me = ProcessHandle.current().pid();
    String script = "kill -STOP " + me + "; sleep " + ns * 1e-9 + "; kill -CONT " + me;
    if (new ProcessBuilder("sh", "-c", script).start().waitFor() != 0) {
      throw new IOException("cannot stop and continue this process with: " + script);
    }
  }

  /** Splitmix64. */
  static final class Random {
    private long state;

    Random(long seed) {
      state = seed;
    }

    private long next() {
      state += 0x9e3779b97f4a7c15L;
      long z = state;
      z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
      z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
      return z ^ (z >>> 31);
    }

    long below(long n) {
      return Math.multiplyHigh(next() >>> 1, n << 1);
    }

    /** A time from 0 to `length`, in ns. */
    long within(long length) {
      return below(length);
    }

    /** The deadline of most workloads: uniform in 1 to 61 s. */
    long delay() {
      return TimeUnit.SECONDS.toNanos(1) + within(TimeUnit.SECONDS.toNanos(60));
    }
  }
}
