//! `nicekv backup` and `nicekv restore`.
//!
//! ```text
//!   backup ─ status ─▶ metadata service         each partition from its primary, one after the other
//!          ─ Backup ─▶ node: Begin (epoch, decision) ─ Entries, Part … ─ End ─▶ .FILE.nicekv-new ─▶ FILE
//!                                            objects: with their chunks, from targets
//!   restore: verify the whole FILE, create missing keyspaces, then put every key as a client does; the chunks of an object before its name
//! ```
//!
//! Each partition is a consistent snapshot at one decision: it has every update that was
//! acknowledged before the backup started, and no update without the earlier ones. Snapshots of
//! different partitions are taken at different times. If reading a partition fails, its snapshot is
//! taken again.

mod chunks;
mod error;
mod format;
mod large_values;
mod objects;
mod partitions;
mod prepare;
mod restore;
mod verify;
mod writers;

use crate::admin::answer;
use crate::client::keyspace;
use crate::discovery::{self, EndpointArguments, Purpose};
use crate::failure::Failure;
use crate::objects::Objects;
use crate::output::print;
use chunks::ChunkFile;
use format::{Header, Record, StoredKeyspace, Totals, Writer};
use nicekv_metadata::{ClusterInfo, KeyspaceInfo, Status};
use nicekv_runtime::control_plane::AdminRequest;
use nicekv_runtime::{now, remove_unfinished_on_signals};
use objects::{Names, ObjectWriter};
use partitions::write_with_retries;
use prepare::prepare;
use restore::{Destinations, NotRestored, Restored, restore_all};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use verify::{Verified, verify};

impl StoredKeyspace {
    fn of(keyspace: &KeyspaceInfo) -> Self {
        Self { id: keyspace.id, name: keyspace.name.clone(), settings: keyspace.settings.clone() }
    }
}

/// `nicekv backup`
#[derive(clap::Args)]
pub struct BackupArguments {
    /// File to write; must not exist
    file: PathBuf,
    /// Only this keyspace, by name or number; may be repeated [default: all]
    #[arg(long = "keyspace", value_name = "NAME")]
    keyspaces: Vec<String>,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

/// `nicekv restore`
#[derive(clap::Args)]
pub struct RestoreArguments {
    /// File that `nicekv backup` wrote
    file: PathBuf,
    /// Also restore into keyspaces with data; keys that both have are overwritten
    #[arg(long)]
    merge: bool,
    /// Create a keyspace with other settings than in the backup, such as orders=replicas=2 or
    /// sessions=quorum,write-set=2; may be repeated
    ///
    /// Settings that are not given are as in the backup. Existing keyspaces are not changed.
    #[arg(long = "keyspace", value_name = "NAME=SPEC")]
    keyspaces: Vec<String>,
    /// Verify the file and show what it contains without changing anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub fn backup(arguments: &BackupArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Read)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let chosen = chosen(&info, &arguments.keyspaces)?;
    let path = &arguments.file;
    if path.exists() {
        return Err(Failure::Environment(format!(
            "{} already exists and is not overwritten",
            path.display()
        )));
    }
    let named = |error: std::io::Error| Failure::Environment(format!("{}: {error}", path.display()));
    let header = Header {
        cluster: format!("{:032x}", info.cluster),
        program: env!("CARGO_PKG_VERSION").into(),
        unix_ms: now().unix_ms,
        keyspaces: chosen.iter().map(|keyspace| StoredKeyspace::of(keyspace)).collect(),
        objects: chosen.iter().filter(|keyspace| keyspace.chunks.is_some()).map(|it| it.id).collect(),
    };
    let sources = sources(&chosen, &info, &endpoint)?;
    remove_unfinished_on_signals().map_err(named)?;
    let mut writer = Writer::create(path, &header).map_err(named)?;
    let (partitions, totals) = write_all(&mut writer, &endpoint, &header, (&sources, path))?;
    writer.finish().map_err(named)?;
    print(format!("{} in {}\n", describe(partitions, &totals), path.display()).as_bytes())
}

/// The named keyspaces, or all. Quorum keyspaces are refused: they have no sequence of decisions,
/// so there is no consistent snapshot.
fn chosen<'a>(info: &'a ClusterInfo, names: &[String]) -> Result<Vec<&'a KeyspaceInfo>, Failure> {
    let chosen: Vec<&KeyspaceInfo> = match names {
        [] => info.keyspaces.iter().collect(),
        names => names.iter().map(|name| keyspace(info, name)).collect::<Result<_, _>>()?,
    };
    match chosen.iter().find(|keyspace| keyspace.quorum.is_some()) {
        Some(quorum) => Err(Failure::Environment(format!(
            "keyspace {} is a quorum keyspace, which cannot be backed up; name other keyspaces with --keyspace",
            quorum.name
        ))),
        None => Ok(chosen),
    }
}

/// The size of a backup, in words.
fn describe(partitions: usize, totals: &Totals) -> String {
    let Totals { entries, bytes, chunks, chunk_bytes } = totals;
    let objects =
        if *chunks > 0 { format!(", {chunks} chunks of {chunk_bytes} bytes") } else { String::new() };
    format!("{partitions} partitions, {entries} entries, {bytes} bytes{objects}")
}

/// The keyspaces of objects among these, by number, with access to their objects.
fn sources(
    chosen: &[&KeyspaceInfo],
    info: &ClusterInfo,
    endpoint: &[SocketAddrV4],
) -> Result<BTreeMap<u16, Objects>, Failure> {
    let with_objects = chosen.iter().filter(|keyspace| keyspace.chunks.is_some());
    with_objects.map(|keyspace| Ok((keyspace.id, Objects::of(keyspace, info, endpoint.to_vec())?))).collect()
}

/// Writes every partition. Names of objects are first collected in a temporary file next to `path`.
fn write_all(
    writer: &mut Writer,
    endpoint: &[SocketAddrV4],
    header: &Header,
    (sources, path): (&BTreeMap<u16, Objects>, &Path),
) -> Result<(usize, Totals), Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let is_chosen = |id: u16| header.keyspaces.iter().any(|chosen| chosen.id == id);
    let partitions = status.partitions.iter().filter(|partition| is_chosen(partition.keyspace));
    let (mut objects, mut all, mut count) = (ObjectWriter::default(), Totals::default(), 0);
    for partition in partitions {
        let totals = match sources.get(&partition.keyspace) {
            None => write_with_retries(writer, endpoint, partition.id)?,
            Some(source) => {
                let mut beside = Names::create(path, header)?;
                write_with_retries(&mut beside, endpoint, partition.id)?;
                objects.write(writer, &Names::of(beside)?, source)?
            }
        };
        all.add(&totals);
        count += 1;
    }
    writer.write(&Record::End(all)).map_err(Failure::environment)?;
    Ok((count, all))
}

pub fn restore(arguments: &RestoreArguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let named = |told: &dyn Display| Failure::Environment(format!("{}: {told}", path.display()));
    let Verified { header, partitions, totals, chunks } = verify(path).map_err(|error| named(&error))?;
    if arguments.dry_run {
        let names: Vec<_> = header.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
        let (cluster, names) = (&header.cluster, names.join(", "));
        let all = describe(partitions, &totals);
        let mut text = format!("valid: cluster {cluster}, keyspaces {names}, {all}\n");
        for StoredKeyspace { name, settings, .. } in &header.keyspaces {
            text += &format!("keyspace {name}={settings}\n");
        }
        return print(text.as_bytes());
    }
    let endpoint = discovery::find(&arguments.endpoint, Purpose::Change)?;
    prepare(&header, &endpoint, arguments)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let destinations = Destinations::find(&header, &info, &endpoint)?;
    let chunks = ChunkFile::open(path, chunks).map_err(|error| named(&error))?;
    let Restored { keys, expired } = restore_all(path, &destinations, &chunks).map_err(|why| match why {
        NotRestored::File(error) => named(&error),
        NotRestored::Put(failure) => failure,
    })?;
    let mut line = format!("restored {keys} keys; {expired} values had expired");
    if totals.chunks > 0 {
        line += &format!("; {} chunks already existed", destinations.known_chunks()?);
    }
    print((line + "\n").as_bytes())
}
