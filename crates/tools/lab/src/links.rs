//! Cables between switches, which can be pulled: unlike with a fault that a switch injects, both ends see it.

use std::collections::BTreeSet;

use crate::error::{LabError, Result};
use crate::lock::Lock;
use crate::scope::Scope;
use crate::state::LabState;
use crate::tool::run;
use crate::topology::Host;
use crate::up::PATIENCE;

/// Cables that are pulled, by their ends, the one above first.
pub(crate) type Unplugged = BTreeSet<(Host, Host)>;

/// Pulls a cable, or puts it in again.
pub(crate) fn change(scope: &Scope, one: &str, other: &str, is_in: bool) -> Result<()> {
    let lock = Lock::take(scope, PATIENCE)?;
    let mut state = LabState::load(scope)?.ok_or(LabError::NotRunning)?;
    let (one, other) = (state.host_mut(one)?.name, state.host_mut(other)?.name);
    let link = state.layout().link(one, other).ok_or(LabError::NoTrunk { one, other })?;
    match is_in {
        true => state.unplugged.remove(&link),
        false => state.unplugged.insert(link),
    };
    state.save(scope)?;
    set(&lock, scope, link, is_in)
}

/// Puts in again what was pulled.
pub(crate) fn plug_all(scope: &Scope) -> Result<()> {
    let lock = Lock::take(scope, PATIENCE)?;
    let mut state = LabState::load(scope)?.ok_or(LabError::NotRunning)?;
    let unplugged = std::mem::take(&mut state.unplugged);
    state.save(scope)?;
    unplugged.into_iter().try_for_each(|link| set(&lock, scope, link, true))
}

fn set(lock: &Lock, scope: &Scope, (above, below): (Host, Host), is_in: bool) -> Result<()> {
    let (namespace, word) = (scope.namespace(above), if is_in { "up" } else { "down" });
    run(lock, &format!("ip -n {} link set {below} {word}", namespace.name()))
}
