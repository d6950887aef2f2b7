//! A client as a gateway of connections that subscribe, unsubscribe and publish, and the messages that they received.

use crate::client::{Workload, now};
use nicekv_client::{ClientCore, Completion, Message, Request, Subscribers, Topic};
use nicekv_proto::publish::ListenKind;
use nicekv_proto::{Duration, KeyspaceId, glob};
use nicekv_testkit::Random;
use std::collections::BTreeMap;

/// Connections that listen.
const PLACES: u64 = 3;
/// Messages that a client publishes at once.
const PUBLISHED_AT_ONCE: usize = 2;
/// Longest pause between two things that a client does here.
const PAUSE_NS_MAX: u64 = 100_000_000;
/// Some of these are patterns of others by their looks, and one is last of all where keys are in their order.
const CHANNELS: [&[u8]; 5] = [b"news", b"new", b"n*", b"other", b"\xff\xff"];
const PATTERNS: [&[u8]; 4] = [b"n*", b"*", b"news", b"[^n]*"];
/// Of long messages: with its channel and its number one has room in a datagram, another needs several.
const LONG_BYTES: [usize; 2] = [900, 3_000];

/// What was published.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) channel: Vec<u8>,
    pub(crate) message: Vec<u8>,
    pub(crate) begun: u64,
    pub(crate) begun_ns: u64,
    /// When it was answered or timed out, and the number of receivers.
    pub(crate) ended: Option<(u64, Option<i64>)>,
    pub(crate) ended_ns: u64,
}

/// A received message, and its subscribers.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) message: Message,
    pub(crate) at_ns: u64,
    pub(crate) listeners: Vec<(u64, Topic)>,
    /// Those that listen to it then, by what they were told.
    pub(crate) expected: Vec<(u64, Topic)>,
}

/// A change of the number of subscribers of this client.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) name: Topic,
    pub(crate) count: u32,
    pub(crate) set: u64,
    pub(crate) set_ns: u64,
    /// When it was confirmed.
    pub(crate) known: Option<(u64, u64)>,
    command: u64,
}

/// Whether one of its names is what a message is published to.
pub(crate) fn is_of((kind, name): &Topic, channel: &[u8]) -> bool {
    match kind {
        ListenKind::Channel => name == channel,
        ListenKind::Pattern => glob::matches(name, channel),
    }
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Listening {
    keyspace: KeyspaceId,
    hub: Subscribers<u64>,
    actions_left: usize,
    act_at_ns: u64,
    commands: u64,
    /// Commands that are not confirmed yet: whose, of which name, and whether it is joined.
    changing: BTreeMap<u64, (u64, Topic, bool)>,
    /// What each connection listens to, and whether that is confirmed.
    joined: BTreeMap<(u64, Topic), bool>,
    /// By the ticket's index, the place in `sent`.
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

    /// When it has something to do though nothing arrives.
    pub(crate) fn next_turn_ns(&self, core: &ClientCore) -> Option<u64> {
        let act = (self.actions_left > 0).then_some(self.act_at_ns);
        let says = self.hub.next_deadline().filter(|_| core.room() > 0);
        act.into_iter().chain(says).min()
    }

    /// Takes the answer to a request of its own; false if it is another one's.
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

    /// Takes what has come, does what is due, and says what the store is to know.
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

    /// Commands are confirmed, or have failed.
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

    /// How many listen has changed by the last command.
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
        let (place, name) = self.joined.keys().nth(index).expect("there are so many").clone();
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

    /// A connection waits until its command is confirmed.
    fn is_busy(&self, place: u64) -> bool {
        self.changing.values().any(|(of, ..)| *of == place)
    }
}
