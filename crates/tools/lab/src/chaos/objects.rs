//! Users of `nicekv object` during faults. Every object that is read must be the last one whose put
//! was acknowledged, or one of a put with unknown outcome.
//!
//! Each user has its own object names and makes one call at a time. A put or delete of unknown
//! outcome may take effect at any later time, so from then on its content is possible, too.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nicekv_testkit::Random;
use serde_json::Value;

use super::long_values;
use crate::error::{LabError, Result};
use crate::test_lab::TestLab;
use crate::wait::Retry;

/// Concurrent users.
pub(super) const USERS: u64 = 2;
/// Object names of a user in a phase.
const NAMES: u64 = 4;
/// Number of different contents. All users and phases share them, so that some chunks are the same.
const CONTENTS: u64 = 64;
/// Percentages of calls; the rest are gets.
const GCS: u64 = 2;
const DELETES: u64 = 8;
const PUTS: u64 = 45;
/// Maximum time until all chunks have all their copies, in their groups.
const TIMEOUT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(300);

/// No object, or the content of this number.
type Content = Option<u64>;

/// Counts of a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    put: usize,
    got: usize,
    deleted: usize,
    unknown: usize,
    rounds: usize,
    read_back: usize,
    wrong: Vec<String>,
}

impl Objects {
    pub(crate) fn add(&mut self, other: &Self) {
        self.put += other.put;
        self.got += other.got;
        self.deleted += other.deleted;
        self.unknown += other.unknown;
        self.rounds += other.rounds;
        self.read_back += other.read_back;
        self.wrong.extend(other.wrong.iter().cloned());
    }

    pub(crate) fn is_failure(&self) -> bool {
        !self.wrong.is_empty()
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, got, deleted, unknown, rounds, read_back, wrong } = self;
        write!(
            formatter,
            "objects: {put} put, {got} got, {deleted} deleted, {unknown} unknown outcomes, {rounds} collections, {read_back} read back"
        )?;
        wrong.iter().try_for_each(|line| write!(formatter, "; WRONG: {line}"))
    }
}

/// The content with this number.
fn content(number: u64) -> Vec<u8> {
    long_values::of_word(format!("object-{number}").as_bytes(), long_values::LARGE)
}

/// A user, and what its names may contain.
pub(super) struct User<'a> {
    lab: &'a TestLab,
    prefix: String,
    /// For each name the possible contents: those of unknown outcome, and last the one that was
    /// acknowledged last.
    possible: BTreeMap<u64, Vec<Content>>,
    scratch: PathBuf,
    pub(super) seen: Objects,
}

impl<'a> User<'a> {
    pub(super) fn new(lab: &'a TestLab, phase: u32, number: u64) -> Self {
        let prefix = format!("chaos-{phase}-{number}");
        let scratch = lab.scope.logs().join(format!("object-{number}"));
        let possible = (0..NAMES).map(|name| (name, vec![None])).collect();
        Self { lab, prefix, possible, scratch, seen: Objects::default() }
    }

    /// Makes calls until it is stopped.
    pub(super) fn work(&mut self, random: &mut Random, stopped: &AtomicBool) -> Result<()> {
        while !stopped.load(Ordering::Relaxed) && !self.seen.is_failure() {
            let name = random.below(NAMES);
            match random.below(100) {
                0..GCS => {
                    let (done, _) = self.object(&["gc", "--now", "--timeout", "5"])?;
                    self.seen.rounds += usize::from(done);
                }
                call if call < GCS + DELETES => self.delete(name)?,
                call if call < GCS + DELETES + PUTS => self.put(name, random.below(CONTENTS))?,
                _ => drop(self.get(name)?),
            }
        }
        Ok(())
    }

    /// Reads all objects, after the faults.
    pub(super) fn read_back(&mut self) -> Result<()> {
        for name in 0..NAMES {
            if self.seen.is_failure() {
                break;
            }
            if let Some(why) = self.get(name)? {
                self.seen.wrong.push(format!("{} cannot be read: {why}", self.name(name)));
            }
            self.seen.read_back += 1;
        }
        let _ = fs::remove_file(&self.scratch);
        Ok(())
    }

    fn name(&self, name: u64) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn object(&self, words: &[&str]) -> Result<(bool, String)> {
        self.lab.nicekv(&[&["object"], words].concat())
    }

    fn file(&self) -> String {
        self.scratch.to_string_lossy().into_owned()
    }

    fn put(&mut self, name: u64, number: u64) -> Result<()> {
        fs::write(&self.scratch, content(number)).map_err(LabError::system("write an object"))?;
        let (done, _) = self.object(&["put", &self.name(name), &self.file()])?;
        self.seen.put += usize::from(done);
        self.note(name, Some(number), done);
        Ok(())
    }

    fn delete(&mut self, name: u64) -> Result<()> {
        let (done, output) = self.object(&["delete", &self.name(name)])?;
        let is_done = done || output.contains("there is no object");
        self.seen.deleted += usize::from(is_done);
        self.note(name, None, is_done);
        Ok(())
    }

    fn note(&mut self, name: u64, content: Content, is_done: bool) {
        let possible = self.possible.entry(name).or_default();
        if is_done {
            // Operations of unknown outcome may still take effect.
            possible.pop();
            possible.push(content);
        } else {
            self.seen.unknown += 1;
            possible.insert(0, content);
        }
    }

    /// Reads an object and checks that its content is possible. Returns why it cannot be read.
    fn get(&mut self, name: u64) -> Result<Option<String>> {
        let (done, output) = self.object(&["get", &self.name(name), &self.file()])?;
        let found = match done {
            true => Some(fs::read(&self.scratch).map_err(LabError::system("read an object"))?),
            false if output.contains("there is no object") => None,
            false => {
                // A put of unknown outcome may replace the object in the meantime, and its chunks
                // may be collected.
                let is_certain = self.possible[&name].len() == 1;
                if is_certain && output.contains("no target of the chunk's group holds it") {
                    self.seen.wrong.push(format!("{}: {}", self.name(name), output.trim()));
                }
                return Ok(Some(output));
            }
        };
        self.seen.got += 1;
        let possible = &self.possible[&name];
        let is_it = |one: &Content| one.map(content) == found;
        if !possible.iter().any(is_it) {
            let found = found.map_or("nothing".into(), |bytes| format!("{} bytes", bytes.len()));
            self.seen.wrong.push(format!("{} is {found}, but possible are {possible:?}", self.name(name)));
        }
        Ok(None)
    }
}

/// Waits for a garbage collection that decides about chunks without a name, and then until all
/// chunks have all their copies and none is moving to another group.
pub(super) fn wait_until_rebuilt(lab: &TestLab, interrupted: &AtomicBool) -> Result<()> {
    let (collected, output) = lab.nicekv(&["object", "gc", "--now"])?;
    if !collected {
        let reason = format!("garbage collection failed: {}", output.trim());
        return Err(LabError::NotReady { seconds: 60, reason });
    }
    Retry::from(Instant::now(), TIMEOUT, PAUSE).run(interrupted, || {
        let (succeeded, output) = lab.nicekv(&["status", "--json"])?;
        let chunks = serde_json::from_str::<Value>(&output).unwrap_or_default()["chunks"].take();
        let is_settled = succeeded
            && chunks["under_replicated"] == 0
            && chunks["unsettled"] == 0
            && chunks["is_moving"] == false;
        Ok(is_settled.then_some(()).ok_or_else(|| format!("chunks are still moving: {chunks}")))
    })
}
