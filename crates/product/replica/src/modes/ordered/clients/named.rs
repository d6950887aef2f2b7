//! Large values that remembered results name: they are former values of keys, which clients have
//! asked for and may be reading.

use super::{ClientRecord, StoredResult};
use alloc::vec::Vec;
use nicekv_proto::large::Reference;
use nicekv_proto::{Form, OpId};

/// Changes in order: a large value, and true if one more result names it, false if one less does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named(Vec<(OpId, bool)>);

impl Named {
    /// A result is remembered.
    pub(crate) fn add(&mut self, result: &StoredResult) {
        self.0.extend(name(result).map(|name| (name, true)));
    }

    /// A result is forgotten.
    pub(crate) fn remove(&mut self, result: &StoredResult) {
        self.0.extend(name(result).map(|name| (name, false)));
    }

    /// A client is forgotten, with all its results.
    pub(crate) fn forget(&mut self, record: &ClientRecord) {
        record.results.after(None).for_each(|(_, result)| self.remove(result));
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = (OpId, bool)> {
        core::mem::take(&mut self.0).into_iter()
    }
}

fn name(result: &StoredResult) -> Option<OpId> {
    let value = result.value.as_deref().filter(|_| result.form == Form::Large)?;
    Reference::decode(value).ok().map(|reference| reference.name)
}
