//! Test grants from an unlimited budget, which counts the bytes held.

use super::large_arguments::BufferGrant;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Debug)]
pub(super) struct TestBudget {
    held: Arc<AtomicUsize>,
    /// Size of the largest grant that may become dependent.
    dependent_max: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct TestGrant {
    budget: TestBudget,
    bytes: usize,
}

impl TestBudget {
    pub(super) fn grant(&self, bytes: usize) -> TestGrant {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        TestGrant { budget: self.clone(), bytes }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn set_dependent_max(&self, bytes: usize) {
        self.dependent_max.store(bytes, Ordering::Relaxed);
    }
}

impl TestGrant {
    pub(super) fn budget() -> TestBudget {
        TestBudget { held: Arc::default(), dependent_max: Arc::new(usize::MAX.into()) }
    }

    pub(super) fn new(bytes: usize) -> Self {
        Self::budget().grant(bytes)
    }
}

impl BufferGrant for TestGrant {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn split(&mut self, bytes: usize) -> Self {
        self.bytes -= bytes;
        Self { budget: self.budget.clone(), bytes }
    }

    fn join(&mut self, mut other: Self) {
        self.bytes += core::mem::take(&mut other.bytes);
    }

    fn shrink_to(&mut self, bytes: usize) {
        if bytes < self.bytes {
            *self = self.split(bytes);
        }
    }

    fn make_dependent(&mut self) -> bool {
        self.bytes <= self.budget.dependent_max.load(Ordering::Relaxed)
    }
}

impl Drop for TestGrant {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
