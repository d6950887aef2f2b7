//! The possible states of the register at a point of the timeline, given all earlier answers: a set of [`Configuration`]s.

use crate::model::Register;
use crate::timeline::OpIndex;
use alloc::rc::Rc;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// One way in which things may stand.
#[derive(Clone, Default)]
pub(crate) struct Configuration {
    pub(crate) register: Rc<Register>,
    /// Ops that have taken effect and are not due yet, ascending.
    pub(crate) done: Vec<OpIndex>,
    /// Open-ended ops that have taken effect, ascending.
    pub(crate) spent: Vec<OpIndex>,
    /// The last op was open-ended, and its value has not been observed: overwriting it now would waste it.
    pub(crate) is_unseen: bool,
}

/// Adds `index` to an ascending list.
pub(crate) fn add(list: &mut Vec<OpIndex>, index: OpIndex) {
    if let Err(place) = list.binary_search(&index) {
        list.insert(place, index);
    }
}

/// Takes `index` out of an ascending list; whether it was there.
pub(crate) fn remove(list: &mut Vec<OpIndex>, index: OpIndex) -> bool {
    let place = list.binary_search(&index);
    place.map(|place| list.remove(place)).is_ok()
}

/// Whether all of `few` is in `many`; both ascend.
fn is_within(few: &[OpIndex], many: &[OpIndex]) -> bool {
    let mut many = many.iter();
    few.len() <= many.len() && few.iter().all(|index| many.any(|other| other == index))
}

/// Which open-ended ops have been spent, in each of several configurations.
type Alternatives = Vec<Vec<OpIndex>>;

/// Configurations of which none is *dominated*: with the same register and the same ops done, the one that has spent fewer open-ended ops
/// can do all that the other can, since no answer depends on those.
#[derive(Default)]
pub(crate) struct Frontier {
    list: Vec<Configuration>,
    /// By register and ops done.
    spent: HashMap<(Rc<Register>, Vec<OpIndex>), Alternatives, FixedState>,
}

impl Frontier {
    /// Adds a configuration; whether it was new and not dominated.
    pub(crate) fn add(&mut self, configuration: Configuration) -> bool {
        let Configuration { register, done, spent, .. } = &configuration;
        let known = self.spent.entry((Rc::clone(register), done.clone())).or_default();
        if known.iter().any(|fewer| is_within(fewer, spent)) {
            return false;
        }
        known.push(spent.clone());
        self.list.push(configuration);
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Configuration> {
        self.list.get(place)
    }

    pub(crate) fn into_list(self) -> Vec<Configuration> {
        self.list
    }
}
