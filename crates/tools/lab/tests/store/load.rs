//! Clients that write while something else goes on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::fixture::{LabUnderTest, text};
use crate::{PATIENCE, POLL_PAUSE, inside};

/// Acknowledged puts that show that puts go on.
const PROGRESS_PUTS: usize = 300;
const WRITERS: usize = 4;

/// Writers that put keys of their own, and somebody who reads what they wrote last, until they are stopped.
#[derive(Default)]
pub(crate) struct Load {
    /// The number of the keyspace.
    keyspace: usize,
    stopped: AtomicBool,
    acknowledged: AtomicUsize,
    /// The number of each writer's next key: the one before is acknowledged.
    next: [AtomicUsize; WRITERS],
    /// Puts and gets that were answered by an error.
    failed: AtomicUsize,
}

/// So that a failed assertion does not leave writers behind that nobody stops.
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// Has writers at work while `work` is done, and sees to it that nothing acknowledged is missing then.
    pub(crate) fn during(lab: &LabUnderTest, work: impl FnOnce(&Self)) {
        Self::of_keyspace(0, lab, work);
    }

    /// The same in a keyspace.
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

    /// In a keyspace that may be ordered they are all over it.
    fn key(&self, writer: usize, number: usize) -> String {
        let key = format!("writer-{writer}-{number}");
        match self.keyspace {
            0 => key,
            _ => format!("{}-{key}", char::from(b'a' + (number % 26) as u8)),
        }
    }

    /// The numbers of the keys whose put was acknowledged.
    fn write(&self, lab: &LabUnderTest, writer: usize) -> Vec<usize> {
        let mut redis = self.redis(lab, writer % 2);
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            // An outcome that is unknown promises nothing.
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

    /// Apart from the writers: puts go on when gets may not, without leases.
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

    /// Puts and gets that were answered by an error.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn wait_for_progress(&self) {
        self.wait_for_puts(PROGRESS_PUTS);
    }

    /// Until so many more are acknowledged.
    pub(crate) fn wait_for_puts(&self, count: usize) {
        let aim = self.acknowledged.load(Ordering::Relaxed) + count;
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.load(Ordering::Relaxed) < aim {
            assert!(Instant::now() < deadline, "puts do not go on");
            std::thread::sleep(POLL_PAUSE);
        }
    }
}

/// A connection to the gateway of a client host.
pub(crate) struct Redis {
    stream: BufReader<TcpStream>,
}

impl Redis {
    pub(crate) fn on(lab: &LabUnderTest, client: &str) -> Self {
        let deadline = Instant::now() + PATIENCE;
        let stream = inside(lab, client, || {
            loop {
                match TcpStream::connect("127.0.0.1:6379") {
                    Ok(stream) => break stream,
                    // Just started.
                    Err(error) => assert!(Instant::now() < deadline, "{error}"),
                }
            }
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// A simple string, a bulk string, or an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        self.say(words);
        self.hear()
    }

    /// What an array says, with the arrays in it.
    pub(crate) fn list(&mut self, words: &[&str]) -> Vec<String> {
        self.say(words);
        self.hear_list()
    }

    /// What the next array says that comes.
    pub(crate) fn hear_list(&mut self) -> Vec<String> {
        let (mut listed, mut left) = (Vec::new(), 1);
        while left > 0 {
            left -= 1;
            match self.hear() {
                Ok(one) => listed.push(one),
                Err(line) if line.starts_with(':') => listed.push(line),
                Err(line) => {
                    left +=
                        line.strip_prefix('*').unwrap_or_else(|| panic!("{line}")).parse::<usize>().unwrap();
                }
            }
        }
        listed
    }

    fn say(&mut self, words: &[&str]) {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(command.as_bytes()).unwrap();
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        match line.split_at(1) {
            ("+", simple) => Ok(simple.to_owned()),
            ("$", "-1") => Err("no value".to_owned()),
            ("$", length) => {
                let mut bulk = vec![0; length.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bulk).unwrap();
                Ok(text(&bulk[..bulk.len() - 2]))
            }
            _ => Err(line.to_owned()),
        }
    }
}
