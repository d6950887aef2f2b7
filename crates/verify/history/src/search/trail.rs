//! The points of a search to which it can go back.

use super::Point;
use alloc::vec::Vec;

/// Number of events between two points.
const SPACING: usize = 128;
/// Maximum points. Beyond that, every other point of the older half is dropped.
const POINTS_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Trail {
    /// The point before the first event at which a configuration was dropped: its frontier is
    /// complete. `None` if none was dropped.
    pub(crate) left_out: Option<Point>,
    /// Later points, ascending.
    points: Vec<Point>,
}

impl Trail {
    /// Notes that a configuration is dropped at the next event.
    pub(crate) fn leave_out(&mut self, here: &Point) {
        self.left_out.get_or_insert_with(|| here.clone());
    }

    /// Records a point, every [`SPACING`] events.
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

    /// The last point up to `event`. With `None`, or without such a point, the point at which the
    /// first configuration was dropped. Later points are removed.
    pub(crate) fn back(&mut self, event: Option<usize>) -> Point {
        self.points.retain(|point| event.is_some_and(|event| point.next_event <= event));
        let left_out = match self.points.last() {
            Some(point) => return point.clone(),
            None => self.left_out.take(),
        };
        left_out.expect("the search goes back only if it has dropped a configuration")
    }
}
