//! A client as a gateway whose connections subscribe, unsubscribe and publish; records the messages
//! that they receive.

use crate::client::{Workload, now};
use nicekv_client::{ClientCore, Completion, Message, Request, Subscribers, Topic};
use nicekv_proto::publish::ListenKind;
use nicekv_proto::{Duration, KeyspaceId, glob};
use nicekv_testkit::Random;
use std::collections::BTreeMap;

/// Connections that can subscribe.
const PLACES: u64 = 3;
/// Maximum messages that a client has in flight.
const PUBLISHED_AT_ONCE: usize = 2;
/// Longest pause between two actions (publish, subscribe or unsubscribe).
const PAUSE_NS_MAX: u64 = 100_000_000;
/// Some names look like patterns that match others; the last sorts after all other keys in an
/// ordered keyspace.
const CHANNELS: [&[u8]; 5] = [b"news", b"new", b"n*", b"other", b"\xff\xff"];
const PATTERNS: [&[u8]; 4] = [b"n*", b"*", b"news", b"[^n]*"];
/// Lengths of long messages: with its channel and number, the first fits into a datagram and the
/// second needs several.
const LONG_BYTES: [usize; 2] = [900, 3_000];

/// A published message.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) channel: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) begun: u64,
    pub(crate) begun_ns: u64,
    /// When the publish call ended (tick), and the number of receivers; `None`: it timed out or
    /// failed.
    pub(crate) ended: Option<(u64, Option<i64>)>,
    pub(crate) ended_ns: u64,
}

/// A received message, and the subscribers that the client delivered it to.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) message: Message,
    pub(crate) at_ns: u64,
    pub(crate) listeners: Vec<(u64, Topic)>,
    /// The subscribers that should receive it, by the confirmations they had got.
    pub(crate) expected: Vec<(u64, Topic)>,
}

/// A change of this client's number of subscribers of a channel or pattern.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) name: Topic,
    pub(crate) count: u32,
    pub(crate) set: u64,
    pub(crate) set_ns: u64,
    /// When it was confirmed: tick and time in nanoseconds.
    pub(crate) known: Option<(u64, u64)>,
    command: u64,
}

/// Whether a subscription to this channel or pattern receives messages of `channel`.
pub(crate) fn is_of((kind, name): &Topic, channel: &[u8]) -> bool {
    match kind {
        ListenKind::Channel => name == channel,
        ListenKind::Pattern => glob::matches(name, channel),
    }
}

#[derive(Clone)]
pub(crate) struct Listening {
    keyspace: KeyspaceId,
    hub: Subscribers<u64>,
    actions_left: usize,
    act_at_ns: u64,
    commands: u64,
    /// Unconfirmed commands: connection, name, and whether it is a subscription.
    changing: BTreeMap<u64, (u64, Topic, bool)>,
    /// What each connection subscribes to, and whether that is confirmed.
    joined: BTreeMap<(u64, Topic), bool>,
    /// Indexes in `sent` of unanswered publish calls, by the index of their ticket.
    open: BTreeMap<usize, usize>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) heard: Vec<Heard>,
    pub(crate) counted: Vec<Counted>,
}

impl Listening {
    pub(crate) fn new(keyspace: KeyspaceId, workload: &Workload) -> Self {
        Self {
            keyspace,
            hub: Subscribers::new(keyspace),
            actions_left: workload.messages,
            act_at_ns: workload.begins_ns,
            commands: 0,
            changing: BTreeMap::new(),
            joined: BTreeMap::new(),
            open: BTreeMap::new(),
            sent: Vec::new(),
            heard: Vec::new(),
            counted: Vec::new(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.actions_left == 0 && self.open.is_empty() && self.changing.is_empty()
    }

    pub(crate) fn add_actions(&mut self, actions: usize) {
        self.actions_left += actions;
    }

    /// When the client must run its loop for pub/sub even if nothing arrives.
    pub(crate) fn next_turn_ns(&self, core: &ClientCore) -> Option<u64> {
        let act = (self.actions_left > 0).then_some(self.act_at_ns);
        let says = self.hub.next_deadline().filter(|_| core.room() > 0);
        act.into_iter().chain(says).min()
    }

    /// Takes the answer to a pub/sub request; false if the request is not one.
    pub(crate) fn take(&mut self, at_ns: u64, completion: &Completion<'_>, tick: &mut u64) -> bool {
        if self.hub.handle_completion(now(at_ns), completion) {
            return true;
        }
        let Some(index) = self.open.remove(&completion.ticket.index()) else { return false };
        *tick += 1;
        let count = completion.result.ok().map(|answer| answer.integer);
        (self.sent[index].ended, self.sent[index].ended_ns) = (Some((*tick, count)), at_ns);
        true
    }

    /// Takes received messages, performs the next action if it is due, and sends changed
    /// subscriptions to the store.
    pub(crate) fn turn(
        &mut self,
        at_ns: u64,
        core: &mut ClientCore,
        workload: &Workload,
        random: &mut Random,
        tick: &mut u64,
    ) {
        self.hear(at_ns, core);
        self.follow(at_ns, tick);
        while self.actions_left > 0 && self.act_at_ns <= at_ns {
            self.actions_left -= 1;
            let pause_ns = if random.below(3) > 0 { random.below(PAUSE_NS_MAX) } else { 0 };
            self.act_at_ns = at_ns + pause_ns;
            match random.below(8) {
                0..4 => self.publish(at_ns, core, workload, random, tick),
                4..6 => self.join(at_ns, random, tick),
                _ => self.leave(at_ns, random, tick),
            }
        }
        self.hub.submit_announcements(now(at_ns), core, Duration::from_nanos(workload.timeout_ns));
    }

    fn hear(&mut self, at_ns: u64, core: &mut ClientCore) {
        while let Some(message) = core.poll_message() {
            let told = self.hub.recipients(&message).map(|(place, pattern)| match pattern {
                Some(pattern) => (place, (ListenKind::Pattern, pattern.to_vec())),
                None => (place, (ListenKind::Channel, message.channel.clone())),
            });
            let mut listeners: Vec<_> = told.collect();
            listeners.sort();
            let active = self.joined.iter().filter(|(_, is_active)| **is_active).map(|(whose, _)| whose);
            let mut expected: Vec<_> =
                active.filter(|(_, name)| is_of(name, &message.channel)).cloned().collect();
            expected.sort();
            self.heard.push(Heard { message, at_ns, listeners, expected });
        }
    }

    /// Processes confirmations and failures of commands.
    fn follow(&mut self, at_ns: u64, tick: &mut u64) {
        while let Some((over, result)) = self.hub.poll_confirmed() {
            for (_, command) in over {
                let Some((place, name, joins)) = self.changing.remove(&command) else { continue };
                *tick += 1;
                if result.is_ok() {
                    let mut of_command = self.counted.iter_mut().filter(|counted| counted.command == command);
                    of_command.next().expect("it was counted").known = Some((*tick, at_ns));
                }
                if joins && result.is_ok() {
                    self.joined.insert((place, name.clone()), true);
                    self.hub.activate(place, &name);
                } else if joins {
                    self.joined.remove(&(place, name.clone()));
                    self.hub.unsubscribe(now(at_ns), place, &name, None);
                    self.commands += 1;
                    self.count(at_ns, name, *tick);
                }
            }
        }
    }

    /// Records how many connections subscribe to `name` after the last command.
    fn count(&mut self, at_ns: u64, name: Topic, set: u64) {
        let count = self.joined.keys().filter(|(_, known)| *known == name).count() as u32;
        let command = self.commands;
        self.counted.push(Counted { name, count, set, set_ns: at_ns, known: None, command });
    }

    fn publish(
        &mut self,
        at_ns: u64,
        core: &mut ClientCore,
        workload: &Workload,
        random: &mut Random,
        tick: &mut u64,
    ) {
        if self.open.len() == PUBLISHED_AT_ONCE {
            return;
        }
        let channel = random.pick(&CHANNELS);
        let (client, number) = (core.config().client.0 & 0xff, self.sent.len());
        let long = if random.below(4) == 0 { LONG_BYTES[number % LONG_BYTES.len()] } else { 0 };
        let message = format!("{client}/{number} {:x<long$}", "").into_bytes();
        let request = Request::Publish { channel, message: &message };
        let deadline_ns = at_ns + workload.timeout_ns;
        let ticket = core.submit(now(at_ns), self.keyspace, request, deadline_ns).expect("within limits");
        *tick += 1;
        self.open.insert(ticket.index(), self.sent.len());
        let (begun, channel) = (*tick, channel.to_vec());
        self.sent.push(Sent { channel, message, begun, begun_ns: at_ns, ended: None, ended_ns: u64::MAX });
    }

    fn join(&mut self, at_ns: u64, random: &mut Random, tick: &mut u64) {
        let place = random.below(PLACES);
        let name = match random.below(2) {
            0 => (ListenKind::Channel, random.pick(&CHANNELS).to_vec()),
            _ => (ListenKind::Pattern, random.pick(&PATTERNS).to_vec()),
        };
        if self.is_busy(place) || self.joined.contains_key(&(place, name.clone())) {
            return;
        }
        self.commands += 1;
        assert!(self.hub.subscribe(now(at_ns), place, &name, self.commands), "there are few names");
        self.joined.insert((place, name.clone()), false);
        self.change(at_ns, place, name, true, tick);
    }

    fn leave(&mut self, at_ns: u64, random: &mut Random, tick: &mut u64) {
        if self.joined.is_empty() {
            return;
        }
        let index = random.below(self.joined.len() as u64) as usize;
        let (place, name) = self.joined.keys().nth(index).expect("the index is below the length").clone();
        if self.is_busy(place) {
            return;
        }
        self.commands += 1;
        assert!(self.hub.unsubscribe(now(at_ns), place, &name, Some(self.commands)), "it was joined");
        self.joined.remove(&(place, name.clone()));
        self.change(at_ns, place, name, false, tick);
    }

    fn change(&mut self, at_ns: u64, place: u64, name: Topic, joins: bool, tick: &mut u64) {
        *tick += 1;
        self.count(at_ns, name.clone(), *tick);
        self.changing.insert(self.commands, (place, name, joins));
    }

    /// Whether a connection waits for the confirmation of its command.
    fn is_busy(&self, place: u64) -> bool {
        self.changing.values().any(|(of, ..)| *of == place)
    }
}
