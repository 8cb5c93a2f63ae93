//! The functions of libverge-c, as `verge_c.h` declares and documents them.
//!
//! Everything is unsafe to call and nothing is checked: a safe crate would build on this one.
//! Callbacks are called on threads of verge's runtime, except those of a queue, and must not panic:
//! a panic that reaches C ends the program.

#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

pub type verge_callback = Option<unsafe extern "C" fn(argument: *mut c_void)>;

macro_rules! opaque {
    ($($name:ident)*) => {$(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )*};
}
opaque!(verge_runtime verge_timer verge_queue verge_simulation);

pub const VERGE_MICROSECOND: i64 = 1_000;
pub const VERGE_MILLISECOND: i64 = 1_000_000;
pub const VERGE_SECOND: i64 = 1_000_000_000;
pub const VERGE_MINUTE: i64 = 60 * VERGE_SECOND;
pub const VERGE_HOUR: i64 = 60 * VERGE_MINUTE;
pub const VERGE_NEVER: i64 = i64::MAX;
pub const VERGE_NO_ID: u64 = 0;
pub const VERGE_SKIP: c_int = 0;
pub const VERGE_BURST: c_int = 1;
pub const VERGE_DELAY: c_int = 2;

#[repr(C)]
pub struct verge_runtime_options {
    pub size: usize,
    pub processors: c_uint,
    pub engine: *const c_char,
}

#[repr(C)]
#[derive(Default)]
pub struct verge_runtime_stats {
    pub size: usize,
    pub processors: u64,
    pub timers_live: u64,
    pub timers_fired: u64,
    pub timer_bytes: u64,
    pub late_p50: u64,
    pub late_p99: u64,
}

#[repr(C)]
pub struct verge_timer_options {
    pub size: usize,
    pub runtime: *mut verge_runtime,
    pub slack: i64,
    pub missed_ticks: c_int,
    pub precise: c_int,
}

#[repr(C)]
pub struct verge_simulation_options {
    pub size: usize,
    pub seed: u64,
    pub start: i64,
}

extern "C" {
    pub fn verge_version() -> *const c_char;
    pub fn verge_strerror(error: c_int) -> *const c_char;

    pub fn verge_now() -> i64;
    pub fn verge_fast_now() -> i64;
    pub fn verge_sleep(duration: i64) -> c_int;

    pub fn verge_runtime_new(
        runtime: *mut *mut verge_runtime,
        options: *const verge_runtime_options,
    ) -> c_int;
    pub fn verge_runtime_free(runtime: *mut verge_runtime);
    pub fn verge_runtime_get_stats(
        runtime: *mut verge_runtime,
        stats: *mut verge_runtime_stats,
    ) -> c_int;

    pub fn verge_after(
        timer: *mut *mut verge_timer,
        delay: i64,
        callback: verge_callback,
        argument: *mut c_void,
        destroy: verge_callback,
        options: *const verge_timer_options,
    ) -> c_int;
    pub fn verge_at(
        timer: *mut *mut verge_timer,
        when: i64,
        callback: verge_callback,
        argument: *mut c_void,
        destroy: verge_callback,
        options: *const verge_timer_options,
    ) -> c_int;
    pub fn verge_every(
        timer: *mut *mut verge_timer,
        period: i64,
        callback: verge_callback,
        argument: *mut c_void,
        destroy: verge_callback,
        options: *const verge_timer_options,
    ) -> c_int;
    pub fn verge_timer_stop(timer: *mut verge_timer) -> c_int;
    pub fn verge_timer_reset(timer: *mut verge_timer, delay: i64) -> c_int;
    pub fn verge_timer_reset_at(timer: *mut verge_timer, when: i64) -> c_int;
    pub fn verge_timer_detach(timer: *mut verge_timer) -> c_int;
    pub fn verge_timer_free(timer: *mut verge_timer);

    pub fn verge_queue_new(queue: *mut *mut verge_queue) -> c_int;
    pub fn verge_queue_free(queue: *mut verge_queue);
    pub fn verge_queue_fd(queue: *const verge_queue) -> c_int;
    pub fn verge_queue_start(
        queue: *mut verge_queue,
        when: i64,
        callback: verge_callback,
        argument: *mut c_void,
        destroy: verge_callback,
        id: *mut u64,
    ) -> c_int;
    pub fn verge_queue_stop(queue: *mut verge_queue, id: u64) -> c_int;
    pub fn verge_queue_reset(queue: *mut verge_queue, id: u64, when: i64) -> c_int;
    pub fn verge_queue_next(queue: *mut verge_queue) -> i64;
    pub fn verge_queue_size(queue: *const verge_queue) -> usize;
    pub fn verge_queue_run(queue: *mut verge_queue, at_most: usize) -> i64;

    pub fn verge_simulation_new(
        simulation: *mut *mut verge_simulation,
        options: *const verge_simulation_options,
    ) -> c_int;
    pub fn verge_simulation_free(simulation: *mut verge_simulation);
    pub fn verge_simulation_run_for(simulation: *mut verge_simulation, duration: i64) -> c_int;
}
