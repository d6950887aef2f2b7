//! A SUBSCRIBE or UNSUBSCRIBE in progress, until the store has confirmed each name.

use crate::answered::Answered;
use crate::call::Call;
use crate::continuation::{Continuation, Effect, Next};
use crate::error::CommandError;
use crate::resp::ReplyWriter;
use crate::subscription::{NAME_BYTES, SubscriptionChange, SubscriptionRequest};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use nicekv_client::Topic;

/// A SUBSCRIBE or UNSUBSCRIBE that waits until the store has confirmed each name. The host sends
/// the requests to the store.
#[derive(Debug)]
pub struct PendingSubscription {
    request: SubscriptionRequest,
    /// Names in the order of the command, each with the number of subscriptions after it.
    lines: Vec<(Option<Vec<u8>>, usize)>,
    changed: Vec<Topic>,
    unconfirmed: usize,
    error: Option<CommandError>,
}

impl PendingSubscription {
    pub fn new(request: SubscriptionRequest) -> Self {
        Self { request, lines: Vec::new(), changed: Vec::new(), unconfirmed: 0, error: None }
    }

    /// Adds a name, and the number of subscriptions after it. `is_changed`: the store has to
    /// confirm the name.
    pub fn add(&mut self, name: Option<Topic>, total: usize, is_changed: bool) {
        self.unconfirmed += usize::from(is_changed);
        self.lines.push((name.as_ref().map(|name| name.1.clone()), total));
        self.changed.extend(name.filter(|_| is_changed));
    }

    /// Records that the command cannot be carried out.
    pub fn refuse(&mut self, error: CommandError) {
        self.error.get_or_insert(error);
    }
}

impl Continuation for PendingSubscription {
    fn next<'a>(&'a mut self, _: &Call<'a>) -> Next<'a> {
        Next::Done
    }

    fn take(&mut self, _: u32, answered: Answered<'_>) -> bool {
        self.unconfirmed = self.unconfirmed.saturating_sub(1);
        // A failed UNSUBSCRIBE is no error: nodes forget a subscription that is not renewed.
        if let (true, Err(error)) = (self.request.subscribes, answered.result) {
            let text = format!("ERR {error}: the channel's partition has not confirmed the subscription");
            self.error.get_or_insert(CommandError::text(text));
        }
        self.is_over()
    }

    fn fail(&mut self, _: u32, error: CommandError) {
        self.refuse(error);
    }

    fn in_flight(&self) -> usize {
        self.unconfirmed
    }

    fn wants_values(&self) -> bool {
        false
    }

    fn is_over(&self) -> bool {
        self.unconfirmed == 0
    }

    fn write(self: Box<Self>, reply: &mut ReplyWriter<'_>) -> Effect {
        match &self.error {
            Some(error) => reply.error(error.as_bytes()),
            None => {
                for (name, total) in &self.lines {
                    reply.push(3);
                    reply.bulk(self.request.verb().as_bytes());
                    reply.bulk_or_null(name.as_deref(), None);
                    reply.integer(*total as i64);
                }
            }
        }
        let (names, subscribes) = (self.changed, self.request.subscribes);
        Effect::Subscribed(SubscriptionChange { names, subscribes, failed: self.error.is_some() })
    }

    fn memory(&self) -> usize {
        let of_lines = self.lines.iter().map(|(name, _)| NAME_BYTES + name.as_ref().map_or(0, Vec::len));
        2 * of_lines.sum::<usize>()
    }
}
