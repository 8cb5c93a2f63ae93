use crate::measure::{processor_time, resident_bytes, stand_still, Random, FIRED};
use crate::{Answer, Request};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::{unconstrained, yield_now};
use tokio::time::{sleep_until, Instant, Sleep};

type Timer = Pin<Box<Sleep>>;
const TURN: usize = 1024;

struct Nobody;
impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// The state of one thread: its own timers, and what they wake.
struct Lane {
    random: Random,
    timers: Vec<Option<Timer>>,
    waker: Waker,
}

impl Lane {
    fn new(n: usize, seed: u64) -> Lane {
        let mut timers = Vec::with_capacity(n);
        timers.resize_with(n, || None);
        Lane { random: Random(seed), timers, waker: Waker::from(Arc::new(Nobody)) }
    }
    fn start(&self, delay: Duration) -> Timer {
        let mut t = Box::pin(sleep_until(Instant::now() + delay));
        let _ = t.as_mut().poll(&mut Context::from_waker(&self.waker));
        t
    }
    fn fill(&mut self) {
        for i in 0..self.timers.len() {
            let delay = self.random.delay();
            self.timers[i] = Some(self.start(delay));
        }
    }
    fn any(&mut self) -> usize {
        self.random.below(self.timers.len() as u64) as usize
    }
    fn reset(&mut self, delay: Duration) {
        let i = self.any();
        self.timers[i].as_mut().unwrap().as_mut().reset(Instant::now() + delay);
    }
}

fn start_stop(l: &mut Lane) {
    let i = l.any();
    let delay = l.random.delay();
    let fresh = l.start(delay);
    l.timers[i] = Some(fresh); // drops the earlier one
}
fn reset_later(l: &mut Lane) {
    l.reset(Duration::from_secs(61));
}
fn reset_back_forth(l: &mut Lane) {
    let delay = l.random.delay();
    l.reset(delay);
}

const IDLE: Duration = Duration::from_millis(500);
fn packet(l: &mut Lane) {
    l.reset(IDLE);
}

pub fn run(r: &Request) -> Result<Answer, String> {
    match r.workload.as_str() {
        "start_stop" => alone(throughput(r, start_stop)),
        "reset_later" => alone(throughput(r, reset_later)),
        "reset_back_forth" => alone(throughput(r, reset_back_forth)),
        "idle_connections" => alone(idle_connections(r)),
        "rpc_deadlines" => alone(rpc_deadlines(r)),
        "fill" => alone(fill(r)),
        "memory" => alone(memory(r)),
        "fire" => alone(fire(r))?,
        "dense_10k" | "dense_100k" => alone(dense(r))?,
        "two_threads" => Ok(two_threads(r)),
        "lateness_idle" | "lateness_busy" => alone(lateness(r, 0)),
        "lateness_100k" => alone(lateness(r, r.timers)),
        other => Err(format!("there is no workload '{other}'")),
    }
}

/// On one thread, and without the limit on how often a task may poll before it yields: the loop has
/// its turn often enough.
fn alone<T>(workload: impl Future<Output = T>) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_time().build();
    Ok(runtime.map_err(|e| e.to_string())?.block_on(unconstrained(workload)))
}

/// At least so many operations, and for the time that was asked for.
async fn work(r: &Request, l: &mut Lane, operation: fn(&mut Lane)) -> usize {
    let end = Instant::now() + Duration::from_millis(r.milliseconds);
    let mut done = 0;
    while done < r.timers || Instant::now() < end {
        for _ in 0..TURN {
            operation(l);
        }
        done += TURN;
        yield_now().await;
    }
    done
}

async fn longest_of(operations: usize, l: &mut Lane, operation: fn(&mut Lane)) -> f64 {
    let mut longest = Duration::ZERO;
    let mut before = Instant::now();
    for i in 1..=operations {
        operation(l);
        if i % TURN == 0 {
            yield_now().await;
        }
        let after = Instant::now();
        longest = longest.max(after - before);
        before = after;
    }
    longest.as_nanos() as f64
}

async fn measured(r: &Request, l: &mut Lane, operation: fn(&mut Lane)) -> Answer {
    let begin = processor_time();
    let done = work(r, l, operation).await;
    let took = processor_time() - begin;
    let longest = longest_of(r.timers.max(100_000), l, operation).await;
    Answer::Metrics(vec![("ns_per_op", took as f64 / done as f64), ("longest_ns", longest)])
}

async fn throughput(r: &Request, operation: fn(&mut Lane)) -> Answer {
    let mut l = Lane::new(r.timers, r.seed);
    l.fill();
    for i in 0..r.timers {
        operation(&mut l);
        if i % TURN == 0 {
            yield_now().await;
        }
    }
    measured(r, &mut l, operation).await
}

async fn idle_connections(r: &Request) -> Answer {
    let mut l = Lane::new(r.timers, r.seed);
    for i in 0..r.timers {
        l.timers[i] = Some(l.start(IDLE));
    }
    measured(r, &mut l, packet).await
}

/// The calls under way stand in a ring. One in a hundred is given to a task that awaits its end.
fn call(l: &mut Lane) {
    const DEADLINE: Duration = Duration::from_millis(50);
    const LOST: u64 = 100;
    l.random.0 += 1; // counts the calls: this lane has no other use for it
    let calls = l.random.0;
    let n = l.timers.len() as u64;
    let fresh = l.start(DEADLINE);
    let oldest = std::mem::replace(&mut l.timers[(calls % n) as usize], Some(fresh));
    if let (0, Some(lost)) = (calls % LOST, oldest) {
        tokio::spawn(async move {
            lost.await;
            FIRED.fetch_add(1, Ordering::Relaxed);
        });
    }
}

async fn rpc_deadlines(r: &Request) -> Answer {
    let mut l = Lane::new(r.timers, 0);
    measured(r, &mut l, call).await
}

async fn fill(r: &Request) -> Answer {
    let mut l = Lane::new(r.timers, r.seed);
    let before = resident_bytes();
    let begin = processor_time();
    l.fill();
    let took = processor_time() - begin;
    let grown = resident_bytes() - before;
    Answer::Metrics(vec![
        ("ns_per_op", took as f64 / r.timers as f64),
        ("bytes_per_timer", grown / r.timers as f64),
    ])
}

async fn memory(r: &Request) -> Answer {
    let mut l = Lane::new(r.timers, r.seed);
    let before = resident_bytes();
    l.fill();
    for i in 0..4 * r.timers {
        start_stop(&mut l);
        if i % TURN == 0 {
            yield_now().await;
        }
    }
    Answer::Metrics(vec![("bytes_per_timer", (resident_bytes() - before) / r.timers as f64)])
}

async fn fire(r: &Request) -> Result<Answer, String> {
    let mut random = Random(r.seed);
    let before = FIRED.load(Ordering::Relaxed);
    let filling = Duration::from_micros(3 * r.timers as u64) + Duration::from_millis(100);
    let first = Instant::now() + filling;
    for _ in 0..r.timers {
        let due = first + random.within(Duration::from_secs(1));
        tokio::spawn(async move {
            sleep_until(due).await;
            FIRED.fetch_add(1, Ordering::Relaxed);
        });
    }
    static ARRIVED: AtomicUsize = AtomicUsize::new(0);
    tokio::spawn(async { ARRIVED.store(1, Ordering::Relaxed) });
    while ARRIVED.load(Ordering::Relaxed) == 0 {
        yield_now().await; // the tasks before it are registered then
    }
    if FIRED.load(Ordering::Relaxed) != before {
        return Err("starting the timers took so long that some have fired already".into());
    }
    let begin = processor_time();
    stand_still(first + Duration::from_millis(1005) - Instant::now())?;
    while FIRED.load(Ordering::Relaxed) < before + r.timers {
        yield_now().await;
    }
    let took = processor_time() - begin;
    Ok(Answer::Metrics(vec![("ns_per_op", took as f64 / r.timers as f64)]))
}

async fn dense(r: &Request) -> Result<Answer, String> {
    let n = r.timers * r.milliseconds as usize / 1000;
    let apart = Duration::from_secs(1) / r.timers as u32;
    let mut random = Random(r.seed);
    let before = FIRED.load(Ordering::Relaxed);
    let filling = Duration::from_micros(3 * n as u64) + Duration::from_millis(100);
    let first = Instant::now() + filling;
    for i in 0..n {
        let due = first + apart * i as u32 + random.within(apart);
        tokio::spawn(async move {
            sleep_until(due).await;
            FIRED.fetch_add(1, Ordering::Relaxed);
        });
    }
    sleep_until(first - Duration::from_millis(2)).await;
    if FIRED.load(Ordering::Relaxed) != before {
        return Err("starting the timers took so long that some have fired already".into());
    }
    let begin = processor_time();
    while FIRED.load(Ordering::Relaxed) < before + n {
        sleep_until(Instant::now() + Duration::from_millis(20)).await;
    }
    let took = processor_time() - begin;
    Ok(Answer::Metrics(vec![("ns_per_op", took as f64 / n as f64)]))
}

fn two_threads(r: &Request) -> Answer {
    let runtime =
        Builder::new_multi_thread().worker_threads(r.threads).enable_time().build().unwrap();
    let together = Arc::new(Barrier::new(r.threads));
    let mut tasks = Vec::new();
    for i in 0..r.threads {
        let together = together.clone();
        let r = Request { workload: String::new(), ..*r };
        tasks.push(runtime.spawn(unconstrained(async move {
            let mut l = Lane::new(r.timers, r.seed + i as u64);
            l.fill();
            together.wait();
            for k in 0..r.timers {
                start_stop(&mut l);
                if k % TURN == 0 {
                    yield_now().await;
                }
            }
            let begin = Instant::now();
            let pairs = work(&r, &mut l, start_stop).await;
            pairs as f64 / begin.elapsed().as_secs_f64()
        })));
    }
    let mut sum = 0.0;
    for task in tasks {
        sum += runtime.block_on(task).unwrap();
    }
    Answer::Metrics(vec![("ops_per_s", sum)])
}

async fn lateness(r: &Request, others: usize) -> Answer {
    let n = r.milliseconds as usize;
    let late: Arc<Vec<AtomicI64>> = Arc::new((0..n).map(|_| AtomicI64::new(0)).collect());
    let mut live = Lane::new(others, r.seed);
    for i in 0..others {
        let delay = Duration::from_secs(30) + live.random.within(Duration::from_secs(31));
        live.timers[i] = Some(live.start(delay));
    }
    let mut random = Random(r.seed + 1);
    let first = Instant::now() + Duration::from_millis(100);
    let mut tasks = Vec::new();
    for i in 0..n {
        let within = random.within(Duration::from_millis(1));
        let due = first + Duration::from_millis(i as u64) + within;
        let late = late.clone();
        tasks.push(tokio::spawn(async move {
            sleep_until(due).await;
            let now = Instant::now();
            let ns = match now.checked_duration_since(due) {
                Some(d) => d.as_nanos() as i64,
                None => -((due - now).as_nanos() as i64),
            };
            late[i].store(ns, Ordering::Relaxed);
        }));
    }
    for task in tasks {
        let _ = task.await;
    }
    Answer::Late(late.iter().map(|l| l.load(Ordering::Relaxed)).collect())
}
