//! A reminder that is put off once: `cargo run --example reminder`.

use std::os::raw::c_void;
use std::ptr::{null, null_mut};
use std::sync::mpsc::{channel, Sender};
use verge_sys::*;

unsafe extern "C" fn remind(sender: *mut c_void) {
    (*(sender as *const Sender<&str>)).send("the order is still unpaid").unwrap();
}

unsafe extern "C" fn drop_sender(sender: *mut c_void) {
    drop(Box::from_raw(sender as *mut Sender<&str>));
}

fn main() {
    let (sender, reminders) = channel::<&str>();
    let argument = Box::into_raw(Box::new(sender)) as *mut c_void;
    let mut timer = null_mut();
    unsafe {
        let delay = VERGE_HOUR;
        let result =
            verge_after(&mut timer, delay, Some(remind), argument, Some(drop_sender), null());
        assert_eq!(result, 0);
        assert_eq!(verge_timer_reset(timer, 20 * VERGE_MILLISECOND), 1); // it was pending
    }
    println!("{}", reminders.recv().unwrap());
    unsafe { verge_timer_free(timer) };
}
