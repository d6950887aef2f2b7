//! Clients that write in the background of a test.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use redis::{ConnectionLike, Value};

use crate::fixture::{LabUnderTest, text};
use crate::{POLL_PAUSE, TIMEOUT, inside};

/// Number of acknowledged puts that counts as progress.
const PROGRESS_PUTS: usize = 300;
const WRITERS: usize = 4;

/// Writers that put their own keys, and a reader of the last written ones, until they are stopped.
#[derive(Default)]
pub(crate) struct Load {
    /// The number of the keyspace.
    keyspace: usize,
    stopped: AtomicBool,
    acknowledged: AtomicUsize,
    /// The number of each writer's next key. The key before it is acknowledged.
    next: [AtomicUsize; WRITERS],
    /// Number of puts and gets that were answered by an error.
    failed: AtomicUsize,
}

/// Stops the writers when it is dropped, also after a failed assertion.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// Runs writers during `work`, and checks that no acknowledged put is missing.
    pub(crate) fn during(lab: &LabUnderTest, work: impl FnOnce(&Self)) {
        Self::of_keyspace(0, lab, work);
    }

    /// The same in another keyspace.
    pub(crate) fn of_keyspace(keyspace: usize, lab: &LabUnderTest, work: impl FnOnce(&Self)) {
        let load = Self { keyspace, ..Self::default() };
        let acknowledged: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let _stop = StopOnDrop(&load.stopped);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let load = &load;
                    scope.spawn(move || load.write(lab, writer))
                })
                .collect();
            let reader = scope.spawn(|| load.read(lab));
            load.wait_for_progress();
            work(&load);
            load.stopped.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let mut redis = load.redis(lab, 0);
        for (writer, numbers) in acknowledged.iter().enumerate() {
            for number in numbers {
                let value = redis.ask(&["GET", &load.key(writer, *number)]);
                assert_eq!(value, Ok(number.to_string()), "writer {writer}");
            }
        }
    }

    fn redis(&self, lab: &LabUnderTest, client: usize) -> Redis {
        let mut redis = Redis::on(lab, &format!("client-{client}"));
        assert_eq!(redis.ask(&["SELECT", &self.keyspace.to_string()]), Ok("OK".into()));
        redis
    }

    /// In an ordered keyspace the keys are spread over all of it.
    fn key(&self, writer: usize, number: usize) -> String {
        let key = format!("writer-{writer}-{number}");
        match self.keyspace {
            0 => key,
            _ => format!("{}-{key}", char::from(b'a' + (number % 26) as u8)),
        }
    }

    /// Writes until it is stopped. Returns the numbers of the keys whose put was acknowledged.
    fn write(&self, lab: &LabUnderTest, writer: usize) -> Vec<usize> {
        let mut redis = self.redis(lab, writer % 2);
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            // The outcome of other puts is unknown.
            if redis.ask(&["SET", &self.key(writer, number), &number.to_string()]) == Ok("OK".into()) {
                acknowledged.push(number);
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                self.next[writer].store(number + 1, Ordering::Relaxed);
            } else {
                self.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        acknowledged
    }

    /// Reads in a separate thread: without leases gets stop, but puts continue.
    fn read(&self, lab: &LabUnderTest) {
        let mut redis = self.redis(lab, 1);
        for writer in (0..WRITERS).cycle() {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let Some(number) = self.next[writer].load(Ordering::Relaxed).checked_sub(1) else { continue };
            match redis.ask(&["GET", &self.key(writer, number)]) {
                Ok(value) => assert_eq!(value, number.to_string(), "writer {writer}"),
                Err(_) => _ = self.failed.fetch_add(1, Ordering::Relaxed),
            }
        }
    }

    /// Number of puts and gets that were answered by an error.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn wait_for_progress(&self) {
        self.wait_for_puts(PROGRESS_PUTS);
    }

    /// Waits until `count` more puts are acknowledged.
    pub(crate) fn wait_for_puts(&self, count: usize) {
        let aim = self.acknowledged.load(Ordering::Relaxed) + count;
        let deadline = Instant::now() + TIMEOUT;
        while self.acknowledged.load(Ordering::Relaxed) < aim {
            assert!(Instant::now() < deadline, "no progress of puts");
            std::thread::sleep(POLL_PAUSE);
        }
    }
}

/// A connection to the gateway of a client host.
pub(crate) struct Redis {
    connection: redis::Connection,
}

impl Redis {
    pub(crate) fn on(lab: &LabUnderTest, client: &str) -> Self {
        let gateway = redis::Client::open("redis://127.0.0.1:6379").unwrap();
        let deadline = Instant::now() + TIMEOUT;
        let connection = inside(lab, client, || {
            loop {
                match gateway.get_connection() {
                    Ok(connection) => break connection,
                    // The gateway may have just been started.
                    Err(error) => assert!(Instant::now() < deadline, "{error}"),
                }
            }
        });
        connection.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { connection }
    }

    /// A string, a number, or an error; "no value" for nil.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        match self.reply(words) {
            Value::Nil => Err("no value".into()),
            Value::ServerError(error) => {
                Err(format!("-{} {}", error.code(), error.details().unwrap_or_default()))
            }
            scalar => Ok(text_of(scalar)),
        }
    }

    /// The elements of an array, and of the arrays in it.
    pub(crate) fn list(&mut self, words: &[&str]) -> Vec<String> {
        flat(self.reply(words))
    }

    /// The elements of the next array that the gateway sends.
    pub(crate) fn next_list(&mut self) -> Vec<String> {
        flat(self.connection.recv_response().unwrap())
    }

    fn reply(&mut self, words: &[&str]) -> Value {
        let mut command = redis::Cmd::new();
        self.connection.req_command(command.arg(words)).unwrap()
    }
}

fn flat(value: Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.into_iter().flat_map(flat).collect(),
        scalar => vec![text_of(scalar)],
    }
}

fn text_of(scalar: Value) -> String {
    match scalar {
        Value::Okay => "OK".into(),
        Value::SimpleString(line) => line,
        Value::BulkString(bytes) => text(&bytes),
        Value::Int(number) => number.to_string(),
        other => panic!("{other:?}"),
    }
}
