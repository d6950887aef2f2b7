//! `nicekv backup` and `nicekv restore`.
//!
//! ```text
//!   backup ─ status ─▶ metadata service         each partition from the node that leads it, one after the other
//!          ─ Backup ─▶ node: Begin (epoch, decision) ─ Entries, Part … ─ End ─▶ FILE.new ─▶ FILE
//!   restore: the whole FILE is checked first, then put key by key, as any client puts
//! ```
//!
//! Each partition is as it was at one decision: everything that was acknowledged before the backup was begun is in it, and of any two updates of a
//! partition not the later one without the earlier. Partitions are of different moments. A partition of which no moment can be had, or that breaks off,
//! is read again.

mod format;
mod large;
mod putters;

use crate::clients::client_for;
use crate::commands::{answer, keyspace, print};
use crate::discovery::{self, EndpointArguments};
use crate::failure::Failure;
use format::{Begin, Header, Part, Reader, Record, Totals, Writer};
use large::LargeEntries;
use nicekv_client::facade::Client;
use nicekv_metadata::{ClusterInfo, KeyspaceInfo, Status};
use nicekv_runtime::control_plane::{AdminRequest, BackupFrame};
use nicekv_runtime::{admin, new_client_id, now};
use nicekv_wire::bytes::Reader as Bytes;
use nicekv_wire::recovery::{Entry, read_keyed_entry};
use nicekv_wire::{ClientId, Expiry, OpId};
use putters::{Put, Putters};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// For a partition that can be read: nodes may come and go meanwhile.
const PARTITION_PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// For a node's next page.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);
/// Puts under way when a backup is restored.
const PUTS_MAX: usize = 32;
/// For each of them.
const PUT_TIMEOUT: Duration = Duration::from_secs(30);

/// `nicekv backup`
#[derive(clap::Args)]
pub(crate) struct BackupArguments {
    /// Where it goes; must not be there yet
    file: PathBuf,
    /// Of this keyspace only, by its name or number; may be repeated [default: all]
    #[arg(long = "keyspace", value_name = "NAME")]
    keyspaces: Vec<String>,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

/// `nicekv restore`
#[derive(clap::Args)]
pub(crate) struct RestoreArguments {
    /// What `nicekv backup` has written
    file: PathBuf,
    /// Also into keyspaces that hold something: what both have is then as in the backup
    #[arg(long)]
    merge: bool,
    /// Check the file and show what it has, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    endpoint: EndpointArguments,
}

pub(crate) fn backup(arguments: &BackupArguments) -> Result<(), Failure> {
    let endpoint = discovery::find(&arguments.endpoint)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let chosen = chosen(&info, &arguments.keyspaces)?;
    let path = &arguments.file;
    if path.exists() {
        return Err(Failure::Environment(format!(
            "{} is there already: nothing is written over",
            path.display()
        )));
    }
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    let named = |error: std::io::Error| Failure::Environment(format!("{}: {error}", new.display()));
    let header = Header {
        cluster: format!("{:032x}", info.cluster),
        program: env!("CARGO_PKG_VERSION").into(),
        unix_ms: now().unix_ms,
        keyspaces: chosen.iter().map(|keyspace| (keyspace.id, keyspace.name.clone())).collect(),
    };
    let mut writer = Writer::create(&new, &header).map_err(named)?;
    let written = write_all(&mut writer, &endpoint, &header).and_then(|told| {
        writer.finish().and_then(|()| std::fs::rename(&new, path)).map_err(named).map(|()| told)
    });
    match written {
        Ok((partitions, Totals { entries, bytes })) => print(
            format!("{partitions} partitions, {entries} entries, {bytes} bytes in {}\n", path.display())
                .as_bytes(),
        ),
        Err(failure) => {
            // What is there is not whole.
            _ = std::fs::remove_file(&new);
            Err(failure)
        }
    }
}

/// Those that are named, or all. A quorum has no decisions at which it could be consistent.
fn chosen<'a>(info: &'a ClusterInfo, names: &[String]) -> Result<Vec<&'a KeyspaceInfo>, Failure> {
    let chosen: Vec<&KeyspaceInfo> = match names {
        [] => info.keyspaces.iter().collect(),
        names => names.iter().map(|name| keyspace(info, name)).collect::<Result<_, _>>()?,
    };
    match chosen.iter().find(|keyspace| keyspace.quorum.is_some()) {
        Some(quorum) => Err(Failure::Environment(format!(
            "keyspace {} is a quorum keyspace, of which there is no backup yet: name others with --keyspace",
            quorum.name
        ))),
        None => Ok(chosen),
    }
}

/// Every partition, one after the other.
fn write_all(
    writer: &mut Writer,
    endpoint: &[SocketAddrV4],
    header: &Header,
) -> Result<(usize, Totals), Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let is_chosen = |id: u16| header.keyspaces.iter().any(|(chosen, _)| *chosen == id);
    let partitions: Vec<u32> =
        status.partitions.iter().filter(|partition| is_chosen(partition.keyspace)).map(|it| it.id).collect();
    let mut all = Totals::default();
    for &partition in &partitions {
        let totals = write_patiently(writer, endpoint, partition)?;
        all = Totals { entries: all.entries + totals.entries, bytes: all.bytes + totals.bytes };
    }
    writer.write(&Record::End(all)).map_err(Failure::environment)?;
    Ok((partitions.len(), all))
}

fn write_patiently(
    writer: &mut Writer,
    endpoint: &[SocketAddrV4],
    partition: u32,
) -> Result<Totals, Failure> {
    let deadline = Instant::now() + PARTITION_PATIENCE;
    loop {
        let place = writer.place();
        let why = match write_partition(writer, endpoint, partition)? {
            Ok(totals) => return Ok(totals),
            Err(why) => why,
        };
        writer.go_back(place).map_err(Failure::environment)?;
        if Instant::now() > deadline {
            return Err(Failure::Operation(format!("partition {partition} cannot be read: {why}")));
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

/// Reads a partition from the node that leads it; the inner error is why it has to be tried again.
fn write_partition(
    writer: &mut Writer,
    endpoint: &[SocketAddrV4],
    id: u32,
) -> Result<Result<Totals, String>, Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let Some(partition) = status.partitions.iter().find(|partition| partition.id == id) else {
        return Err(Failure::Operation(format!("partition {id} is gone")));
    };
    let Some(node) = status.nodes.iter().find(|node| node.id == partition.told_by()) else {
        return Ok(Err("who leads it is no node any more".into()));
    };
    let (mut totals, mut refused, mut failure) = (Totals::default(), None, None);
    let mut large = LargeEntries::default();
    let mut take = |frame: BackupFrame| {
        let record = match frame {
            BackupFrame::Begin { epoch, index } => {
                let node = node.name.clone();
                Record::Begin(Begin { keyspace: partition.keyspace, partition: id, epoch, index, node })
            }
            BackupFrame::Entries(entries) => {
                totals.bytes += entries.len() as u64;
                let keyed = keyed_entries(&entries)?;
                totals.entries += keyed.len() as u64;
                keyed.iter().for_each(|(key, entry)| large.expect(key, entry));
                Record::Entries(entries)
            }
            BackupFrame::Part { client, sequence, offset, bytes } => {
                totals.bytes += bytes.len() as u64;
                let name = OpId { client: ClientId(client), sequence };
                let part = Part { name, offset, bytes };
                large.check(&part)?;
                Record::Part(part)
            }
            BackupFrame::End if large.is_empty() => Record::Close(totals),
            BackupFrame::End => return Err("a large value is missing".into()),
            BackupFrame::Refused(why) => {
                refused = Some(why);
                return Ok(());
            }
        };
        writer.write(&record).map_err(|error| {
            failure = Some(Failure::Environment(format!("cannot write the backup: {error}")));
            String::new()
        })
    };
    let read = admin::back_up(node.address, id, NODE_TIMEOUT, &mut take);
    match (failure, refused, read) {
        (Some(failure), _, _) => Err(failure),
        (None, Some(why), _) | (None, None, Err(why)) => Ok(Err(format!("{}: {why}", node.name))),
        (None, None, Ok(())) => Ok(Ok(totals)),
    }
}

type KeyedEntry<'a> = (&'a [u8], Entry<'a>);

fn keyed_entries(bytes: &[u8]) -> Result<Vec<KeyedEntry<'_>>, String> {
    let (mut reader, mut entries) = (Bytes::new(bytes), Vec::new());
    while !reader.is_empty() {
        let (key, entry) = read_keyed_entry(&mut reader).map_err(|error| error.to_string())?;
        let entry = Entry::decode(entry).map_err(|error| error.to_string())?;
        entries.push((key, entry));
    }
    Ok(entries)
}

pub(crate) fn restore(arguments: &RestoreArguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let named = |told: String| Failure::Environment(format!("{}: {told}", path.display()));
    let (header, partitions, totals) = verify(path).map_err(named)?;
    if arguments.dry_run {
        let names: Vec<_> = header.keyspaces.iter().map(|(_, name)| name.as_str()).collect();
        let (cluster, names) = (&header.cluster, names.join(", "));
        let Totals { entries, bytes } = totals;
        let line = format!(
            "good: cluster {cluster}, keyspaces {names}, {partitions} partitions, {entries} entries, {bytes} bytes\n"
        );
        return print(line.as_bytes());
    }
    let endpoint = discovery::find(&arguments.endpoint)?;
    let info: ClusterInfo = answer(&endpoint, &AdminRequest::ClusterInfo)?;
    let status: Status = answer(&endpoint, &AdminRequest::Status)?;
    let clients = clients(&header, &info, &status, arguments.merge)?;
    let (sender, receiver) = sync_channel(PUTS_MAX);
    let putters = Putters::new(receiver);
    let read = std::thread::scope(|scope| {
        for _ in 0..PUTS_MAX {
            scope.spawn(|| putters.run(&clients));
        }
        let counts = put_all(path, &sender, &putters);
        // Then the putters end.
        drop(sender);
        counts
    });
    let (restored, expired) = read.map_err(named)?;
    if let Some(failure) = putters.into_failure() {
        return Err(failure);
    }
    print(format!("restored {restored} keys; {expired} values had expired\n").as_bytes())
}

/// Reads all of it; nothing that is damaged is begun to be restored.
fn verify(path: &Path) -> Result<(Header, usize, Totals), String> {
    let mut reader = Reader::open(path)?;
    let (mut all, mut one, mut partitions, mut open) = (Totals::default(), Totals::default(), 0, false);
    let mut large = LargeEntries::default();
    loop {
        match reader.next()? {
            Record::Begin(begin) if !open => {
                if !reader.header.keyspaces.iter().any(|(id, _)| *id == begin.keyspace) {
                    return Err(reader.damaged("a partition of a keyspace that it has not"));
                }
                (one, open) = (Totals::default(), true);
                partitions += 1;
            }
            Record::Entries(entries) if open => {
                one.bytes += entries.len() as u64;
                let entries = keyed_entries(&entries).map_err(|error| reader.damaged(error))?;
                one.entries += entries.len() as u64;
                entries.iter().for_each(|(key, entry)| large.expect(key, entry));
            }
            Record::Part(part) if open => {
                one.bytes += part.bytes.len() as u64;
                large.check(&part).map_err(|error| reader.damaged(error))?;
            }
            Record::Close(totals) if open && totals == one && large.is_empty() => {
                open = false;
                all = Totals { entries: all.entries + one.entries, bytes: all.bytes + one.bytes };
            }
            Record::End(totals) if !open && totals == all && reader.is_at_end()? => {
                return Ok((reader.header, partitions, all));
            }
            _ => return Err(reader.damaged("records in an order that no backup has")),
        }
    }
}

/// For each keyspace of the backup a client; refused if it is not there, or not empty.
fn clients(
    header: &Header,
    info: &ClusterInfo,
    status: &Status,
    merge: bool,
) -> Result<BTreeMap<u16, Client>, Failure> {
    let mut clients = BTreeMap::new();
    for (id, name) in &header.keyspaces {
        let Some(known) = info.keyspaces.iter().find(|keyspace| keyspace.name == *name) else {
            let line = format!(
                "the backup has keyspace {name}, this cluster has not: it must be there, with whatever R"
            );
            return Err(Failure::Environment(line));
        };
        let keys = status.keyspaces.iter().find(|keyspace| keyspace.name == *name).map(|it| it.usage.keys);
        if let Some(keys) = keys.filter(|keys| *keys > 0 && !merge) {
            let line =
                format!("keyspace {name} holds {keys} keys: restore into a new cluster, or say --merge");
            return Err(Failure::Environment(line));
        }
        let client = client_for(known, info.port, new_client_id().map_err(Failure::environment)?)?;
        clients.insert(*id, client.with_timeout(PUT_TIMEOUT));
    }
    Ok(clients)
}

/// Hands every entry over; how many, and how many had expired.
fn put_all(path: &Path, puts: &SyncSender<Put>, putters: &Putters) -> Result<(u64, u64), String> {
    let (mut reader, mut keyspace, mut restored, mut expired) = (Reader::open(path)?, 0, 0, 0);
    let (mut large, now_ms) = (LargeEntries::default(), now().unix_ms);
    let mut put = |keyspace: u16, key: Vec<u8>, value: Vec<u8>, expiry_ms: u64| {
        if expiry_ms != 0 && expiry_ms <= now_ms {
            expired += 1;
            return true;
        }
        restored += 1;
        let expiry = if expiry_ms == 0 { Expiry::Never } else { Expiry::At(expiry_ms) };
        putters.give(puts, Put { keyspace, key, value, expiry })
    };
    loop {
        let goes_on = match reader.next()? {
            Record::Begin(begin) => {
                keyspace = begin.keyspace;
                true
            }
            Record::Close(_) => true,
            Record::End(_) => break,
            Record::Entries(bytes) => keyed_entries(&bytes)?.into_iter().all(|(key, entry)| {
                large.expect(key, &entry);
                let value = entry.value.filter(|_| !entry.is_large);
                value.is_none_or(|value| put(keyspace, key.to_vec(), value.to_vec(), entry.expiry_ms))
            }),
            Record::Part(part) => {
                let whole = large.take(&part).map_err(|error| reader.damaged(error))?;
                whole.is_none_or(|whole| put(keyspace, whole.key, whole.value, whole.expiry_ms))
            }
        };
        if !goes_on {
            break;
        }
    }
    Ok((restored, expired))
}
