//! Reading partitions from their primaries.

use super::error::unwritten;
use super::format::{Begin, Part, Record, Totals, Writer};
use super::large_values::{LargeEntries, keyed_entries};
use crate::admin::answer;
use crate::failure::Failure;
use nicekv_metadata::Status;
use nicekv_proto::{ClientId, OpId};
use nicekv_runtime::admin;
use nicekv_runtime::control_plane::{AdminRequest, BackupFrame};
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

/// Timeout for a partition; it is long enough for nodes to fail and recover.
const PARTITION_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Timeout for the next page of a node.
const NODE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes a consistent snapshot of a partition. If reading fails, starts again with a new snapshot.
pub(super) fn write_with_retries(
    writer: &mut Writer,
    endpoint: &[SocketAddrV4],
    partition: u32,
) -> Result<Totals, Failure> {
    let deadline = Instant::now() + PARTITION_TIMEOUT;
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

/// Reads a partition from its primary. The inner error is a reason to try again, the outer one is
/// final.
fn write_partition(
    writer: &mut Writer,
    endpoint: &[SocketAddrV4],
    id: u32,
) -> Result<Result<Totals, String>, Failure> {
    let status: Status = answer(endpoint, &AdminRequest::Status)?;
    let Some(partition) = status.partitions.iter().find(|partition| partition.id == id) else {
        return Err(Failure::Operation(format!("partition {id} no longer exists")));
    };
    let Some(node) = status.nodes.iter().find(|node| node.id == partition.told_by()) else {
        return Ok(Err("its primary is no longer a node".into()));
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
            failure = Some(unwritten(error));
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
