//! Sends the content of a partition to a command (`nicekv backup`): one backup at a time, page by
//! page, as fast as the peer reads and other work allows.

use super::snapshot::Next;
use super::storage::NodeStorage;
use crate::FramedStream;
use crate::control_plane::{BackupFrame, encode};
use nicekv_proto::{Duration, Now, PartitionId};
use nicekv_replica::Replica;
use nicekv_replica::StreamPeer;
use nicekv_store::StoreError;

/// Pause between pages of 64 KiB, which limits a backup to about 32 MiB a second.
const PAUSE: Duration = Duration::from_millis(2);
/// How long to wait until the partition can be read: its primary must lead, and no put may wait for
/// another one.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The running backup, if any.
#[derive(Default)]
pub(super) struct Backups(Option<Backup>);

struct Backup {
    asker: StreamPeer,
    partition: PartitionId,
    /// Start of the stage; it is given up after a timeout.
    stage: Stage,
    next_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asked,
    Waiting { until_ns: u64 },
    Reading,
}

impl Backups {
    /// Processes a command's request for a backup of a partition. `None`: the stream must be
    /// closed.
    pub(super) fn ask(
        &mut self,
        asker: StreamPeer,
        partition: PartitionId,
        stream: &mut FramedStream,
    ) -> Option<()> {
        if self.0.is_some() {
            let refused = BackupFrame::Refused("another backup is under way at this node".into());
            return stream.queue(&encode(&refused)).ok();
        }
        self.0 = Some(Backup { asker, partition, stage: Stage::Asked, next_ns: 0 });
        Some(())
    }

    pub(super) fn asker(&self) -> Option<StreamPeer> {
        self.0.as_ref().map(|backup| backup.asker)
    }

    pub(super) fn next_deadline(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |backup| backup.next_ns)
    }

    /// Does the next step of the backup. `stream` is the requester's, if it is still open.
    pub(super) fn go_on(
        &mut self,
        now: Now,
        core: &mut Replica,
        storage: &mut NodeStorage,
        stream: Option<&mut FramedStream>,
    ) -> Result<(), StoreError> {
        let (Some(backup), Some(stream)) = (&mut self.0, stream) else {
            return self.end(storage);
        };
        if now.boot_ns < backup.next_ns {
            return Ok(());
        }
        backup.next_ns = now.after(PAUSE);
        // Nothing more is sent until the peer has read the last page, which bounds memory on both
        // sides.
        if stream.has_output() || storage.is_unfinished() {
            return Ok(());
        }
        let frame = match backup.stage {
            Stage::Reading => read(now, core, storage)?,
            _ => backup.begin(now, core, storage)?,
        };
        let is_last = matches!(frame, Some(BackupFrame::End | BackupFrame::Refused(_)));
        let is_queued = frame.is_none_or(|frame| stream.queue(&encode(&frame)).is_ok());
        if is_last || !is_queued {
            return self.end(storage);
        }
        Ok(())
    }

    fn end(&mut self, storage: &mut NodeStorage) -> Result<(), StoreError> {
        self.0 = None;
        storage.end_snapshot()
    }
}

impl Backup {
    /// Begins the snapshot at a moment between two decisions, if there is one now.
    fn begin(
        &mut self,
        now: Now,
        core: &Replica,
        storage: &mut NodeStorage,
    ) -> Result<Option<BackupFrame>, StoreError> {
        if let Some((epoch, index)) = core.settled(now, self.partition) {
            storage.begin_snapshot(self.partition)?;
            self.stage = Stage::Reading;
            return Ok(Some(BackupFrame::Begin { epoch: epoch.0, index }));
        }
        let until_ns = match self.stage {
            Stage::Waiting { until_ns } => until_ns,
            _ => now.after(SETTLE_TIME),
        };
        self.stage = Stage::Waiting { until_ns };
        let why = "this node does not lead the partition, or it has no moment without puts that wait for each other";
        Ok((now.boot_ns >= until_ns).then(|| BackupFrame::Refused(why.into())))
    }
}

fn read(now: Now, core: &mut Replica, storage: &mut NodeStorage) -> Result<Option<BackupFrame>, StoreError> {
    Ok(match storage.next_of_snapshot()? {
        Next::Page(page) if page.is_empty() => None,
        Next::Page(page) => Some(BackupFrame::Entries(page)),
        Next::Part { name, offset, bytes } => {
            let (client, sequence) = (name.client.0, name.sequence);
            Some(BackupFrame::Part { client, sequence, offset, bytes })
        }
        Next::Damaged(name, why) => {
            // The core fetches the value from a replica; the next attempt may find it.
            core.lose_value(now, name);
            Some(BackupFrame::Refused(why.into()))
        }
        Next::End => Some(BackupFrame::End),
        Next::Broken(why) => Some(BackupFrame::Refused(why.into())),
    })
}
