//! Where a search has been: points to go back to.

use super::Point;
use alloc::vec::Vec;

/// Events between two points.
const SPACING: usize = 128;
/// Points that are remembered; then every other one of the older half is forgotten.
const POINTS_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct Trail {
    /// Before the first event at which a configuration was left out: everything possible is in it. `None` if none was.
    pub(crate) left_out: Option<Point>,
    /// After it, ascending.
    points: Vec<Point>,
}

impl Trail {
    /// A configuration is left out at the event that comes next.
    pub(crate) fn leave_out(&mut self, here: &Point) {
        self.left_out.get_or_insert_with(|| here.clone());
    }

    /// The search is `here` now.
    pub(crate) fn pass(&mut self, here: &Point) {
        if self.left_out.is_none() || !here.next_event.is_multiple_of(SPACING) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place > POINTS_MAX / 2 || place % 2 == 0
            });
        }
        self.points.push(here.clone());
    }

    /// The last point up to `event`; `None` is where the first configuration was left out. What comes after is forgotten.
    pub(crate) fn back(&mut self, event: Option<usize>) -> Point {
        self.points.retain(|point| event.is_some_and(|event| point.next_event <= event));
        let left_out = match self.points.last() {
            Some(point) => return point.clone(),
            None => self.left_out.take(),
        };
        left_out.expect("nobody goes back from a search that left out none")
    }
}
