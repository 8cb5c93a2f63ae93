import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * Netty's HashedWheelTimer as a peer of `verge bench`. ../peer.h describes the lines that come and go,
 * ../../workloads.md the workloads. The process stays for all requests; the first one for each workload
 * is run twice, so that what is measured has been compiled.
 */
public final class Peer {
  record Request(String workload, int timers, int threads, int milliseconds, long seed) {}

  private static final Set<String> warm = new HashSet<>();

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(reply(line));
      System.out.flush();
    }
    System.exit(0);
  }

  private static String reply(String line) {
    try {
      if (line.equals("version")) {
        return "{\"version\":\"" + version() + ", Java " + System.getProperty("java.version") + "\"}";
      }
      Request r = parse(line);
      if (!r.workload().startsWith("lateness") && warm.add(r.workload())) {
        int timers = Math.min(r.timers(), 20_000);
        Workloads.run(new Request(r.workload(), timers, r.threads(), 1000, r.seed()));
      }
      return toJson(Workloads.run(r));
    } catch (Exception e) {
      return "{\"error\":\"" + String.valueOf(e).replace('"', '\'') + "\"}";
    }
  }

  private static String version() {
    var common = io.netty.util.Version.identify().get("netty-common");
    return common == null ? "unknown" : common.artifactVersion();
  }

  private static Request parse(String line) {
    String[] words = line.trim().split("\\s+");
    int timers = 1000;
    int threads = 1;
    int milliseconds = 200;
    long seed = 1;
    for (int i = 1; i < words.length; ++i) {
      String[] parts = words[i].split("=", 2);
      if (parts.length != 2) throw new IllegalArgumentException(words[i] + " is not NAME=NUMBER");
      long n = Long.parseLong(parts[1]);
      switch (parts[0]) {
        case "timers" -> timers = (int) n;
        case "threads" -> threads = (int) n;
        case "milliseconds" -> milliseconds = (int) n;
        case "seed" -> seed = n;
        default -> throw new IllegalArgumentException("there is no parameter " + parts[0]);
      }
    }
    return new Request(words[0], timers, threads, milliseconds, seed);
  }

  private static String toJson(Map<String, Object> answer) {
    return answer.entrySet().stream()
        .map(e -> "\"" + e.getKey() + "\":"
            + (e.getValue() instanceof long[] all ? Arrays.toString(all) : e.getValue()))
        .collect(Collectors.joining(",", "{", "}"));
  }
}
