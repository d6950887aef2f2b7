//! Where a bug may be planted.

use nicekv_chunks::Plant;

/// Where a bug is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// In the cores.
    Core(Plant),
    /// P8: names take manifests whose stamps are older than the round that they have adopted.
    StaleStampTaken,
    /// P8: what is marked is read of the names before they adopt the round.
    MarksBeforeAdoption,
    /// P9: a manifest is put before its chunks are.
    ManifestFirst,
}
