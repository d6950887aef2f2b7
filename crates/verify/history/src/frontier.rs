//! The possible states of the register at a point of the timeline, given all earlier answers: a set
//! of [`Configuration`]s.

use crate::model::Register;
use crate::timeline::OpIndex;
use alloc::rc::Rc;
use alloc::vec::Vec;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A possible state of the search: the register, and which ops have taken effect.
#[derive(Clone, Default)]
pub(crate) struct Configuration {
    pub(crate) register: Rc<Register>,
    /// Ops that have taken effect and are not due yet, ascending.
    pub(crate) done: Vec<OpIndex>,
    /// Open-ended ops that have taken effect, ascending.
    pub(crate) spent: Vec<OpIndex>,
    /// Whether the last op was open-ended and its value has not been observed. Overwriting it now
    /// would make the op pointless, so that is not tried.
    pub(crate) is_unseen: bool,
}

/// Adds `index` to an ascending list.
pub(crate) fn add(list: &mut Vec<OpIndex>, index: OpIndex) {
    if let Err(place) = list.binary_search(&index) {
        list.insert(place, index);
    }
}

/// Removes `index` from an ascending list. False if it was not there.
pub(crate) fn remove(list: &mut Vec<OpIndex>, index: OpIndex) -> bool {
    let place = list.binary_search(&index);
    place.map(|place| list.remove(place)).is_ok()
}

/// Whether all of `few` is in `many`. Both are ascending.
fn is_within(few: &[OpIndex], many: &[OpIndex]) -> bool {
    let mut many = many.iter();
    few.len() <= many.len() && few.iter().all(|index| many.any(|other| other == index))
}

/// The spent open-ended ops of several configurations.
type Alternatives = Vec<Vec<OpIndex>>;

/// Configurations of which none is *dominated*: of two with the same register and the same ops
/// done, one that has spent a subset of the other's open-ended ops can continue in every way that
/// the other can. Open-ended ops have no answers to satisfy.
#[derive(Default)]
pub(crate) struct Frontier {
    list: Vec<Configuration>,
    /// The spent ops of all configurations with this register and these ops done.
    spent: HashMap<(Rc<Register>, Vec<OpIndex>), Alternatives, FixedState>,
}

impl Frontier {
    /// Adds a configuration. False if it was known or is dominated.
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
