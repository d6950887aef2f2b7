//! `nicekv object put | get | stat | list | delete | gc`: objects of any length, stored in chunks
//! on those storage targets that can accept them soonest (Replicast).
//!
//! ```text
//!   put   file ─▶ chunk, chunk, … ─▶ targets, a few at a time ─▶ manifest ─▶ the name's value, unless another put was faster
//!   get   the name's value ─▶ manifest ─▶ chunk, chunk, … ─▶ file, in order
//! ```

mod chunk_status;
mod files;
mod gc;
mod semaphore;
mod store;

use crate::client::{TargetArguments, failed};
use crate::discovery::Purpose;
use crate::failure::Failure;
use crate::output::{print, printable};
pub use chunk_status::describe_chunks;
use gc::GcArguments;
pub use store::{NotGot, Objects};

use files::{Range, Sink, open_source};
use futures_executor::block_on;
use nicekv_client::Scan;
use nicekv_client::facade::{Client, Value};
use nicekv_objects::Manifest;
use nicekv_proto::scan::{ScanWants, key_before};
use nicekv_proto::{ClientId, OpId};
use serde::Serialize;
use std::path::PathBuf;

/// Pieces of a listing that are requested at a time.
const PIECES_MAX: usize = 32;

#[derive(clap::Subcommand)]
pub enum ObjectCommand {
    /// Store an object, from a file or standard input
    ///
    /// The object appears once it is complete; until then the name keeps its previous object. Chunks that the cluster already has are not
    /// sent again.
    Put(PutArguments),
    /// Write an object, or a byte range of it, to a file or standard output
    Get(GetArguments),
    /// Show the size, chunks and version of an object, as JSON
    Stat(NameArguments),
    /// List the names of objects, one per line
    ///
    /// Control characters and backslashes in names are escaped: \n, \u{1b}, \\; bytes that are not UTF-8 as \xff.
    List(ListObjectsArguments),
    /// Delete an object; exit code 1 if there is none
    ///
    /// Its chunks remain until garbage is collected.
    Delete(NameArguments),
    /// Show garbage collection, or run it now: delete chunks that no object references
    ///
    /// It also runs every hour (`collect_interval_ms` of the configuration).
    Gc(GcArguments),
}

#[derive(clap::Args)]
pub struct PutArguments {
    /// Name, 1 to 1024 bytes
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    /// File to store; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Store only if the current object has this version, as `stat` shows it; "none": only if the
    /// object does not exist
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    if_version: Option<OpId>,
    /// Chunk size in KiB, 1 to 4096
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    chunk_kib: u32,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args)]
pub struct GetArguments {
    /// Name of the object
    name: String,
    /// File to write; - is standard output
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Only bytes A to B, B excluded; either may be omitted
    #[arg(long, value_name = "A..B", value_parser = files::parse_range)]
    range: Option<Range>,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args)]
pub struct NameArguments {
    /// Name of the object
    name: String,
    #[command(flatten)]
    target: TargetArguments,
}

#[derive(clap::Args)]
pub struct ListObjectsArguments {
    /// Only names with this prefix
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    target: TargetArguments,
}

/// Parses a version; "none" is [`OpId::NONE`].
fn parse_version(text: &str) -> Result<OpId, String> {
    if text == "none" {
        return Ok(OpId::NONE);
    }
    let halves = text.split_once('.');
    let version = halves.and_then(|(client, sequence)| {
        let client = ClientId(u64::from_str_radix(client, 16).ok()?);
        Some(OpId { client, sequence: sequence.parse().ok()? })
    });
    version.ok_or_else(|| "must be a version as `nicekv object stat` shows it, or \"none\"".into())
}

pub fn run(command: &ObjectCommand) -> Result<(), Failure> {
    match command {
        ObjectCommand::Put(arguments) => put(arguments),
        ObjectCommand::Get(arguments) => get(arguments),
        ObjectCommand::Stat(arguments) => stat(arguments),
        ObjectCommand::List(arguments) => list(arguments),
        ObjectCommand::Delete(arguments) => delete(arguments),
        ObjectCommand::Gc(arguments) => gc::run(arguments),
    }
}

fn put(arguments: &PutArguments) -> Result<(), Failure> {
    let mut source = open_source(&arguments.file)?;
    let objects = Objects::open(&arguments.target, Purpose::Change)?;
    let (manifest, stamp) = objects.put(&mut source, arguments.chunk_kib << 10)?;
    let (key, value) = (arguments.name.as_bytes(), manifest.encode());
    let confirm = || objects.confirm(&manifest);
    let version = objects.name((key, &value), stamp, arguments.if_version, confirm)?;
    let Some(version) = version else {
        return Err(Failure::Operation(format!(
            "{:?} has another version; nothing was changed",
            arguments.name
        )));
    };
    print(format!("{version}\n").as_bytes())
}

fn get(arguments: &GetArguments) -> Result<(), Failure> {
    let objects = Objects::open(&arguments.target, Purpose::Read)?;
    let (_, manifest) = block_on(find(objects.names(), &arguments.name))?;
    let range = arguments.range.unwrap_or_default().within(manifest.length)?;
    let mut sink = Sink::create(&arguments.file)?;
    objects.get(&manifest, range, |bytes| sink.write(bytes))?;
    sink.finish()
}

/// The value and manifest of an object.
async fn find(names: &Client, name: &str) -> Result<(Value, Manifest), Failure> {
    let value = names.get(name.as_bytes()).await.map_err(failed)?;
    let value = value.ok_or_else(|| Failure::Operation(format!("there is no object {name:?}")))?;
    let manifest =
        Manifest::decode(&value.bytes).map_err(|error| Failure::Operation(format!("{name:?}: {error}")))?;
    Ok((value, manifest))
}

#[derive(Serialize)]
struct Stat {
    bytes: u64,
    chunks: usize,
    chunk_bytes: u32,
    version: String,
}

fn stat(arguments: &NameArguments) -> Result<(), Failure> {
    let objects = Objects::open(&arguments.target, Purpose::Read)?;
    let (value, manifest) = block_on(find(objects.names(), &arguments.name))?;
    let Manifest { length: bytes, chunk_bytes, ref chunks, .. } = manifest;
    let stat = Stat { bytes, chunks: chunks.len(), chunk_bytes, version: value.version.to_string() };
    let text = serde_json::to_string(&stat).map_err(Failure::environment)?;
    print(format!("{text}\n").as_bytes())
}

fn list(arguments: &ListObjectsArguments) -> Result<(), Failure> {
    let objects = Objects::open(&arguments.target, Purpose::Read)?;
    let prefix = arguments.prefix.as_bytes();
    let mut scan = Scan::new(ScanWants::Keys, key_before(prefix).as_deref());
    while !scan.is_done() {
        let pieces = block_on(objects.names().scan(&mut scan, PIECES_MAX)).map_err(failed)?;
        let mut text = String::new();
        for listed in pieces.listed.iter().filter(|listed| listed.key.starts_with(prefix)) {
            text += &printable(&listed.key);
            text.push('\n');
        }
        print(text.as_bytes())?;
    }
    Ok(())
}

fn delete(arguments: &NameArguments) -> Result<(), Failure> {
    let objects = Objects::open(&arguments.target, Purpose::Change)?;
    let existed = block_on(objects.names().delete(arguments.name.as_bytes())).map_err(failed)?;
    match existed {
        true => print(b"deleted\n"),
        false => Err(Failure::Operation(format!("there is no object {:?}", arguments.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_as_they_print() {
        let version = OpId { client: ClientId(0xabc1), sequence: 12 };
        assert_eq!(parse_version(&version.to_string()), Ok(version));
        assert_eq!(parse_version("none"), Ok(OpId::NONE));
        assert!(["", "12", "x.1", "1.x", "1.2.3"].iter().all(|text| parse_version(text).is_err()));
    }
}
