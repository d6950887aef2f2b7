//! Queues of slots, linked through one table. A slot can be removed from anywhere in constant time,
//! and a queue needs no memory except its two ends.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// The two ends of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    head: u32,
    tail: u32,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

/// The neighbours of each slot in its queue. A slot is in at most one queue, and its owner knows which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// Previous and next.
    links: Vec<(u32, u32)>,
}

impl Links {
    pub(crate) fn push_back(&mut self, queue: &mut Queue, index: u32) {
        let place = index as usize;
        if self.links.len() <= place {
            self.links.resize(place + 1, (NONE, NONE));
        }
        self.links[place] = (queue.tail, NONE);
        match queue.tail {
            NONE => queue.head = index,
            tail => self.links[tail as usize].1 = index,
        }
        queue.tail = index;
    }

    pub(crate) fn remove(&mut self, queue: &mut Queue, index: u32) {
        let (previous, next) = self.links[index as usize];
        match previous {
            NONE => queue.head = next,
            previous => self.links[previous as usize].1 = next,
        }
        match next {
            NONE => queue.tail = previous,
            next => self.links[next as usize].0 = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(links: &mut Links, queue: &mut Queue) -> Vec<u32> {
        let next = || {
            let front = queue.front()?;
            links.remove(queue, front);
            Some(front)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn removing_any_slot_keeps_the_order() {
        for (left, rest) in [(5, [2, 9]), (2, [5, 9]), (9, [5, 2])] {
            let (mut links, mut queue) = (Links::default(), Queue::EMPTY);
            [5, 2, 9].into_iter().for_each(|index| links.push_back(&mut queue, index));
            links.remove(&mut queue, left);
            assert_eq!(order(&mut links, &mut queue), rest);
            assert!(queue.is_empty());
        }
    }
}
