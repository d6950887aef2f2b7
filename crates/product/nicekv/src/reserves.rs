//! Disk space that nodes set aside for a full disk (docs/FAULTS.md row 9).

use nicekv_config::ReserveMib;
use nicekv_operator::failure::Failure;
use nicekv_runtime::node::{RESERVE_BYTES_MIN, RESERVE_FILE, StorageOptions, free_bytes_min};
use nicekv_store::{Files, RealFiles};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Reserves of the nodes of this process, which share a disk.
pub(crate) struct Reserves {
    /// A directory on that disk.
    place: PathBuf,
    nodes: usize,
    options: StorageOptions,
}

impl Reserves {
    /// Reserves for this many nodes on the disk of `place`, which must exist.
    pub(crate) fn of(place: &Path, nodes: usize, reserve: Option<ReserveMib>) -> Result<Self, Failure> {
        let options = match reserve {
            Some(reserve) => StorageOptions::with_reserve(reserve.bytes()),
            None => {
                let capacity = RealFiles.capacity(place).map_err(|error| unknown(place, &error))?;
                StorageOptions::on_disk(capacity, nodes)
            }
        };
        Ok(Self { place: place.into(), nodes, options })
    }

    pub(crate) fn options(&self) -> StorageOptions {
        self.options
    }

    /// Free bytes that the nodes need to accept puts.
    fn needed_bytes(&self) -> u64 {
        let reserve_bytes = self.nodes as u64 * self.options.reserve_bytes;
        reserve_bytes + free_bytes_min(reserve_bytes)
    }

    /// A warning if the disk is so full that the nodes in these directories will refuse puts.
    pub(crate) fn shortage(&self, directories: &[impl AsRef<Path>]) -> Result<Option<String>, Failure> {
        let free = RealFiles.available(&self.place).map_err(|error| unknown(&self.place, &error))?;
        // Reserve files of an earlier process are reused, so they count as free.
        let reserved =
            |directory: &Path| std::fs::metadata(directory.join(RESERVE_FILE)).map_or(0, |it| it.len());
        let has: u64 = free + directories.iter().map(|directory| reserved(directory.as_ref())).sum::<u64>();
        if has >= self.needed_bytes() {
            return Ok(None);
        }
        let reserve = self.options.reserve_bytes / MIB;
        let who = match self.nodes {
            1 => format!("the node sets {reserve} MiB aside"),
            nodes => format!("each of {nodes} nodes sets {reserve} MiB aside"),
        };
        let place = std::path::absolute(&self.place).unwrap_or(self.place.clone());
        Ok(Some(format!(
            "warning: the disk of {} has {} MiB free, {who} for a full disk and {} MiB in all must be free: \
             puts are refused until space is freed on the disk or keys are deleted{}",
            place.display(),
            has / MIB,
            self.needed_bytes().div_ceil(MIB),
            match self.options.reserve_bytes > RESERVE_BYTES_MIN {
                true =>
                    "; a smaller reserve (--reserve-mib of `nicekv up`, reserve_mib of a node) needs less",
                false => "",
            }
        )))
    }
}

fn unknown(place: &Path, error: &std::io::Error) -> Failure {
    Failure::Environment(format!("cannot determine the size of the disk of {}: {error}", place.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(mib: u64) -> ReserveMib {
        mib.try_into().unwrap()
    }

    #[test]
    fn warning_names_free_and_needed_space() {
        let scratch = tempfile::tempdir().unwrap();
        let huge = RealFiles.available(scratch.path()).unwrap() / MIB + (1 << 20);
        let reserves = Reserves::of(scratch.path(), 3, Some(reserve(huge))).unwrap();
        let line = reserves.shortage(&[scratch.path()]).unwrap().unwrap();
        let needed = (3 * huge * 5).div_ceil(4);
        for part in [
            format!("each of 3 nodes sets {huge} MiB"),
            format!("{needed} MiB in all"),
            "--reserve-mib".into(),
        ] {
            assert!(line.contains(&part), "{part}: {line}");
        }
        let least = Reserves::of(scratch.path(), 1, Some(reserve(4))).unwrap();
        assert_eq!(least.shortage(&[scratch.path()]).unwrap(), None);
    }

    #[test]
    fn reserve_is_a_share_of_a_small_disk_and_bounded_on_a_large_one() {
        let reserve = |capacity, nodes| StorageOptions::on_disk(capacity, nodes).reserve_bytes / MIB;
        assert_eq!([reserve(1 << 40, 3), reserve(480 * MIB, 3), reserve(480 * MIB, 1)], [64, 20, 60]);
        assert_eq!(reserve(50 * MIB, 3), 4, "the minimum");
    }
}
