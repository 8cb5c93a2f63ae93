//! tokio's timers as a peer of `verge bench`. ../../peer.h describes the lines that come and go,
//! ../../../workloads.md the workloads.
//!
//! A timer is a `Sleep` in a pinned box, polled once, as `timeout` and `select!` do: from then on it
//! is registered. Dropping it stops it, and `Sleep::reset` gives it another deadline. Where callbacks
//! count, a task awaits it. One thread has the current-thread runtime, several the multi-thread one;
//! the loop has a turn after every thousand operations.

mod measure;
mod workloads;

use std::io::{BufRead, Write};

pub struct Request {
    pub workload: String,
    pub timers: usize,
    pub threads: usize,
    pub milliseconds: u64,
    pub seed: u64,
}

pub enum Answer {
    Metrics(Vec<(&'static str, f64)>),
    Late(Vec<i64>),
}

fn parse(line: &str) -> Result<Request, String> {
    let mut words = line.split_whitespace();
    let workload = words.next().ok_or("an empty request; send: WORKLOAD [NAME=NUMBER ...]")?;
    let mut r = Request {
        workload: workload.to_string(),
        timers: 1000,
        threads: 1,
        milliseconds: 200,
        seed: 1,
    };
    for word in words {
        let wrong = || format!("'{word}' is not NAME=NUMBER");
        let (name, text) = word.split_once('=').ok_or_else(wrong)?;
        let n: u64 = text.parse().map_err(|_| wrong())?;
        match name {
            "timers" => r.timers = n as usize,
            "threads" => r.threads = n as usize,
            "milliseconds" => r.milliseconds = n,
            "seed" => r.seed = n,
            _ => return Err(format!("there is no parameter '{name}'")),
        }
    }
    Ok(r)
}

fn to_json(answer: Result<Answer, String>) -> String {
    match answer {
        Ok(Answer::Metrics(metrics)) => {
            let pairs: Vec<String> = metrics.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect();
            format!("{{{}}}", pairs.join(","))
        }
        Ok(Answer::Late(late)) => {
            let numbers: Vec<String> = late.iter().map(i64::to_string).collect();
            format!("{{\"late_ns\":[{}]}}", numbers.join(","))
        }
        Err(why) => format!("{{\"error\":\"{}\"}}", why.replace('"', "'")),
    }
}

fn main() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let text = if line == "version" {
            format!("{{\"version\":\"{}\"}}", env!("TOKIO_VERSION"))
        } else {
            to_json(parse(&line).and_then(|r| workloads::run(&r)))
        };
        if writeln!(std::io::stdout(), "{text}").is_err() {
            return; // the caller has ended
        }
    }
}
