//! One sync serves all waiting requests, and a failure reaches all of them. The file layer's gate
//! decides when a sync ends: no test here sleeps.

use crate::common;

use common::{DIRECTORY, identity, options};
use nicekv_store::{
    Forgetful, GroupCommit, Log, LogPosition, Result, StoreError,
    files::{FileCall, Moment, PowerLoss, Watched},
};
use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// A timeout that turns a hang into a failure.
const TIMEOUT: Duration = Duration::from_secs(20);

struct Setup {
    disk: Forgetful,
    log: Log,
    commit: GroupCommit,
    begun: Receiver<()>,
    end: Sender<()>,
    notified: Receiver<Result<LogPosition>>,
}

/// A disk that reports when a sync begins, and ends it on command.
fn gated(disk: &Forgetful, begun: Sender<()>, may_end: Receiver<()>) -> Watched {
    let may_end = Mutex::new(may_end);
    Watched::new(Arc::new(disk.clone()), move |moment, call, _| {
        if (moment, call) == (Moment::Begins, FileCall::Sync) {
            begun.send(()).map_err(io::Error::other)?;
            may_end.lock().unwrap().recv_timeout(TIMEOUT).map_err(io::Error::other)?;
        }
        Ok(())
    })
}

fn setup() -> Setup {
    let (begun_sender, begun) = channel();
    let (end, may_end) = channel();
    let (notify, notified) = channel();
    let disk = Forgetful::new(64);
    let files = gated(&disk, begun_sender, may_end);
    // Creating the log syncs its manifest, its first segment, and the manifest that names it.
    const CREATION_SYNCS: usize = 3;
    (0..CREATION_SYNCS).for_each(|_| end.send(()).unwrap());
    let (log, _) =
        Log::open(Arc::new(files), Path::new(DIRECTORY), identity(), options(), |_, _| {}).unwrap();
    (0..CREATION_SYNCS).for_each(|_| begun.recv_timeout(TIMEOUT).unwrap());
    let notify = Box::new(move |result| notify.send(result).expect("the test listens"));
    let commit = GroupCommit::start(log.sync_handle(), notify).unwrap();
    Setup { disk, log, commit, begun, end, notified }
}

impl Setup {
    fn put(&mut self) -> LogPosition {
        let position = self.log.append(b"put").unwrap();
        self.log.write().unwrap();
        self.commit.request(position);
        position
    }

    fn notification(&self) -> Result<LogPosition> {
        self.notified.recv_timeout(TIMEOUT).expect("a notification")
    }
}

#[test]
fn requests_during_a_sync_share_the_next_one() {
    let mut setup = setup();
    let first = setup.put();
    setup.begun.recv_timeout(TIMEOUT).unwrap();
    let mut last = first;
    for _ in 0..5 {
        last = setup.put();
    }
    assert!(setup.notified.try_recv().is_err(), "nothing is durable yet");
    assert_eq!(setup.log.synced(), LogPosition(0));
    setup.end.send(()).unwrap();
    assert_eq!(setup.notification().unwrap(), first, "records written after the sync began are not covered");
    setup.begun.recv_timeout(TIMEOUT).unwrap();
    setup.end.send(()).unwrap();
    assert_eq!(setup.notification().unwrap(), last);
    let Setup { disk, begun, commit, notified, .. } = setup;
    drop(commit);
    assert!(notified.try_recv().is_err(), "a served request is not served again");
    assert!(begun.try_recv().is_err(), "two syncs served six requests");
    disk.power_loss(PowerLoss::DropAll);
    assert_eq!(common::collect(&disk).unwrap().0.len(), 6);
}

#[test]
fn a_failed_sync_fails_every_request_from_then_on() {
    let mut setup = setup();
    setup.disk.fail_next_sync(5);
    setup.put();
    setup.end.send(()).unwrap();
    assert!(matches!(setup.notification(), Err(StoreError::LogFailed { .. })));
    setup.commit.request(setup.log.last());
    assert!(matches!(setup.notification(), Err(StoreError::LogFailed { .. })));
    assert_eq!(setup.log.synced(), LogPosition(0));
}

#[test]
fn closing_waits_for_the_running_sync() {
    let mut setup = setup();
    setup.put();
    setup.begun.recv_timeout(TIMEOUT).unwrap();
    setup.end.send(()).unwrap();
    drop(setup.commit);
    assert_eq!(
        setup.notified.try_recv().expect("notified before the drop returned").unwrap(),
        LogPosition(1)
    );
}
