//! Queries to a role that runs on another thread, for operators.
//!
//! ```text
//!   caller:  question ─▶ queue it, set the flag, wake the role ──▶ wait, with a timeout
//!   role:                 in each turn: is the flag set? ─▶ answer ─┘
//! ```
//!
//! Without queries, a role only checks a flag in each turn, without a lock. The role computes
//! answers from its current state, on its own thread.

use crate::Waker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most waiting queries; further queries get no answer.
const QUESTIONS_MAX: usize = 16;

struct Shared<Q, A> {
    is_asked: AtomicBool,
    waiting: Mutex<Waiting<Q, A>>,
}

struct Waiting<Q, A> {
    questions: Vec<(Q, SyncSender<A>)>,
    /// Waker of the role, once the role runs.
    waker: Option<Waker>,
    has_ended: bool,
}

impl<Q, A> Shared<Q, A> {
    fn locked(&self) -> MutexGuard<'_, Waiting<Q, A>> {
        // Ignores lock poisoning: the list is consistent whenever the lock is free.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The role's side of the queue.
pub struct Inquiries<Q, A>(Arc<Shared<Q, A>>);

/// The callers' side of the queue; clones are equivalent.
pub struct Inquirer<Q, A>(Arc<Shared<Q, A>>);

impl<Q, A> Clone for Inquirer<Q, A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Q, A> Default for Inquiries<Q, A> {
    fn default() -> Self {
        let waiting = Mutex::new(Waiting { questions: Vec::new(), waker: None, has_ended: false });
        Self(Arc::new(Shared { is_asked: AtomicBool::new(false), waiting }))
    }
}

impl<Q, A> Inquiries<Q, A> {
    /// A callers' side of this queue.
    pub fn inquirer(&self) -> Inquirer<Q, A> {
        Inquirer(self.0.clone())
    }

    /// Sets the waker of the role.
    pub fn begin(&self, waker: &Waker) {
        self.0.locked().waker = Some(waker.clone());
        waker.wake();
    }

    /// Answers all waiting queries. Call it in each turn, after the waker was cleared.
    pub fn answer(&self, mut answer: impl FnMut(Q) -> A) {
        if !self.0.is_asked.load(Ordering::Relaxed) {
            return;
        }
        self.0.is_asked.store(false, Ordering::SeqCst);
        let questions = std::mem::take(&mut self.0.locked().questions);
        for (question, asker) in questions {
            // The caller may have timed out.
            let _ = asker.try_send(answer(question));
        }
    }
}

impl<Q, A> Inquirer<Q, A> {
    /// Asks the role. `None`: the timeout has expired, the role has stopped, or too many queries
    /// are waiting.
    pub fn ask(&self, question: Q, timeout: Duration) -> Option<A> {
        let (asker, answered) = sync_channel(1);
        {
            let mut waiting = self.0.locked();
            if waiting.has_ended || waiting.questions.len() >= QUESTIONS_MAX {
                return None;
            }
            waiting.questions.push((question, asker));
            self.0.is_asked.store(true, Ordering::SeqCst);
            if let Some(waker) = &waiting.waker {
                waker.wake();
            }
        }
        answered.recv_timeout(timeout).ok()
    }
}

impl<Q, A> Drop for Inquiries<Q, A> {
    /// Ends all waiting queries: callers must not wait for a role that has stopped.
    fn drop(&mut self) {
        let mut waiting = self.0.locked();
        waiting.has_ended = true;
        waiting.questions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{readable, wait};

    #[test]
    fn queries_are_answered_on_the_role_thread() {
        let (inquiries, waker, done) =
            (Inquiries::default(), Waker::new().unwrap(), Arc::new(AtomicBool::new(false)));
        let inquirer = inquiries.inquirer();
        let role = {
            let (waker, done) = (waker.clone(), done.clone());
            std::thread::spawn(move || {
                inquiries.begin(&waker);
                let own = std::thread::current().id();
                while !done.load(Ordering::Acquire) {
                    // No deadline: a lost wake-up would hang the test.
                    wait(&mut [readable(&waker)], None).unwrap();
                    waker.clear();
                    inquiries.answer(|number: u64| (number + 1, own));
                }
            })
        };
        let askers: Vec<_> = (0..4)
            .map(|asker| {
                let inquirer = inquirer.clone();
                std::thread::spawn(move || {
                    for number in 0..500 {
                        let question = asker * 1_000 + number;
                        let answer = inquirer.ask(question, Duration::from_secs(60)).unwrap();
                        assert_eq!(answer.0, question + 1);
                        assert_ne!(answer.1, std::thread::current().id());
                    }
                })
            })
            .collect();
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        done.store(true, Ordering::Release);
        waker.wake();
        role.join().unwrap();
    }

    #[test]
    fn queries_time_out_and_are_bounded() {
        let inquiries: Inquiries<(), ()> = Inquiries::default();
        let inquirer = inquiries.inquirer();
        for _ in 0..=QUESTIONS_MAX {
            assert_eq!(inquirer.ask((), Duration::from_millis(1)), None);
        }
        assert_eq!(inquiries.0.locked().questions.len(), QUESTIONS_MAX);
        let mut answered = 0;
        inquiries.answer(|()| answered += 1);
        assert_eq!(answered, QUESTIONS_MAX, "waiting queries are answered even after their timeouts");
        let late = inquirer.clone();
        let asking = std::thread::spawn(move || inquirer.ask((), Duration::from_secs(60)));
        while inquiries.0.locked().questions.is_empty() {
            std::thread::yield_now();
        }
        drop(inquiries);
        assert_eq!(asking.join().unwrap(), None, "a waiting query ends at once when the role stops");
        assert_eq!(late.ask((), Duration::from_secs(60)), None, "a later query gets no answer");
    }
}
