//! libverge-c from Rust.

use std::ffi::CStr;
use std::os::raw::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use verge_sys::*;

#[derive(Default)]
struct Counts {
    called: AtomicUsize,
    early: AtomicUsize,
    destroyed: AtomicUsize,
    due: AtomicI64,
}

unsafe extern "C" fn call(argument: *mut c_void) {
    let counts = &*(argument as *const Counts);
    if verge_now() < counts.due.load(SeqCst) {
        counts.early.fetch_add(1, SeqCst);
    }
    counts.called.fetch_add(1, SeqCst);
}

unsafe extern "C" fn destroy(argument: *mut c_void) {
    (*(argument as *const Counts)).destroyed.fetch_add(1, SeqCst);
}

fn pointer(counts: &Counts) -> *mut c_void {
    counts as *const Counts as *mut c_void
}

#[test]
fn a_timer_calls_once_and_not_early() {
    let counts = Counts::default();
    unsafe {
        let mut timer = null_mut();
        let due = verge_now() + 2 * VERGE_MILLISECOND;
        counts.due.store(due, SeqCst);
        let result = verge_at(&mut timer, due, Some(call), pointer(&counts), Some(destroy), null());
        assert_eq!(result, 0);
        while counts.called.load(SeqCst) == 0 {
            thread::yield_now();
        }
        verge_timer_free(timer);
    }
    assert_eq!(counts.called.load(SeqCst), 1);
    assert_eq!(counts.early.load(SeqCst), 0);
    assert_eq!(counts.destroyed.load(SeqCst), 1);
}

#[test]
fn a_stopped_timer_is_never_called() {
    let counts = Counts::default();
    unsafe {
        let mut timer = null_mut();
        verge_after(&mut timer, VERGE_HOUR, Some(call), pointer(&counts), None, null());
        assert_eq!(verge_timer_stop(timer), 1);
        assert_eq!(verge_timer_stop(timer), 0);
        verge_timer_free(timer);
    }
    assert_eq!(counts.called.load(SeqCst), 0);
}

#[test]
fn errors_are_explained() {
    unsafe {
        let result = verge_every(null_mut(), 0, None, null_mut(), None, null());
        assert!(result < 0);
        let text = CStr::from_ptr(verge_strerror(result)).to_str().unwrap();
        assert!(text.contains("invalid argument"), "{text}");
    }
}

#[test]
fn a_simulated_day_takes_no_time() {
    let counts = Counts::default();
    unsafe {
        let mut simulation = null_mut();
        let mut timer = null_mut();
        assert_eq!(verge_simulation_new(&mut simulation, null()), 0);
        verge_every(&mut timer, VERGE_HOUR, Some(call), pointer(&counts), None, null());
        assert_eq!(verge_simulation_run_for(simulation, 24 * VERGE_HOUR), 0);
        verge_timer_free(timer);
        verge_simulation_free(simulation);
    }
    assert_eq!(counts.called.load(SeqCst), 24);
}

struct Queue(*mut verge_queue);
unsafe impl Sync for Queue {}

#[test]
fn a_queue_takes_a_hundred_thousand_timers_of_other_threads() {
    const ALL: usize = 100_000;
    let counts: Vec<Counts> = (0..ALL).map(|_| Counts::default()).collect();
    let mut handle = null_mut();
    assert_eq!(unsafe { verge_queue_new(&mut handle) }, 0);
    let queue = Queue(handle);
    thread::scope(|scope| {
        let (queue, counts) = (&queue, &counts);
        for user in 0..2 {
            scope.spawn(move || {
                for (i, c) in counts.iter().enumerate().skip(user).step_by(2) {
                    let due = unsafe { verge_now() } + (i as i64 * 7919) % 40_000_000;
                    c.due.store(due, SeqCst);
                    let result = unsafe {
                        verge_queue_start(queue.0, due, Some(call), pointer(c), None, null_mut())
                    };
                    assert_eq!(result, 0);
                }
            });
        }
        let mut called = 0;
        while called < ALL {
            called += unsafe { verge_queue_run(queue.0, usize::MAX) } as usize;
        }
    });
    unsafe { verge_queue_free(queue.0) };
    assert!(counts.iter().all(|c| c.called.load(SeqCst) == 1 && c.early.load(SeqCst) == 0));
}
