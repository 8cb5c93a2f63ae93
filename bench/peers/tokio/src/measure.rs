//! Clocks, memory, random deadlines, and how callbacks count.

use std::sync::atomic::AtomicUsize;
use std::time::Duration;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}
extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}
const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;

/// What all threads of this process have used, in nanoseconds.
pub fn processor_time() -> i64 {
    let mut t = Timespec { seconds: 0, nanoseconds: 0 };
    unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut t) };
    t.seconds * 1_000_000_000 + t.nanoseconds
}

pub fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text.split(' ').nth(1).and_then(|w| w.parse().ok()).unwrap_or(0.0);
    pages * 4096.0
}

/// Splitmix64.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e3779b97f4a7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next() >> 32) * n) >> 32
    }
    /// A time from 0 to `length`, in steps of 16 ns.
    pub fn within(&mut self, length: Duration) -> Duration {
        Duration::from_nanos(self.below(length.as_nanos() as u64 >> 4) << 4)
    }
    /// The deadline of most workloads: uniform in 1 to 61 s.
    pub fn delay(&mut self) -> Duration {
        Duration::from_secs(1) + self.within(Duration::from_secs(60))
    }
}

pub static FIRED: AtomicUsize = AtomicUsize::new(0);

/// Stops the whole process for that long: what becomes due meanwhile is overdue when it continues.
/// A child does it, as a stopped process cannot wake itself.
pub fn stand_still(d: Duration) -> Result<(), String> {
    let me = std::process::id();
    let script = format!("kill -STOP {me}; sleep {}; kill -CONT {me}", d.as_secs_f64());
    let status = std::process::Command::new("sh").arg("-c").arg(&script).status();
    match status {
        Ok(s) if s.success() => Ok(()),
        _ => Err(format!("cannot stop and continue this process with: {script}")),
    }
}
