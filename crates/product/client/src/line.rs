//! Lines of slots that wait for their turn, linked through the slots: a slot leaves from anywhere in constant time, and a line takes no
//! memory of its own, however many there are.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// The ends of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    head: u32,
    tail: u32,
}

impl Line {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

/// Who is before and behind each slot. A slot is in one line at most, and its owner knows in which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// Before, behind.
    links: Vec<(u32, u32)>,
}

impl Links {
    pub(crate) fn push_back(&mut self, line: &mut Line, index: u32) {
        let place = index as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, (NONE, NONE));
        }
        self.links[place] = (line.tail, NONE);
        match line.tail {
            NONE => line.head = index,
            tail => self.links[tail as usize].1 = index,
        }
        line.tail = index;
    }

    pub(crate) fn remove(&mut self, line: &mut Line, index: u32) {
        let (before, behind) = self.links[index as usize];
        match before {
            NONE => line.head = behind,
            before => self.links[before as usize].1 = behind,
        }
        match behind {
            NONE => line.tail = before,
            behind => self.links[behind as usize].0 = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(links: &mut Links, line: &mut Line) -> Vec<u32> {
        let next = || {
            let front = line.front()?;
            links.remove(line, front);
            Some(front)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn slots_leave_from_anywhere_and_the_order_stays() {
        for (left, rest) in [(5, [2, 9]), (2, [5, 9]), (9, [5, 2])] {
            let (mut links, mut line) = (Links::default(), Line::EMPTY);
            [5, 2, 9].into_iter().for_each(|index| links.push_back(&mut line, index));
            links.remove(&mut line, left);
            assert_eq!(order(&mut links, &mut line), rest);
            assert!(line.is_empty());
        }
    }
}
