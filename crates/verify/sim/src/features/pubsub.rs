//! Runs in which clients are gateways whose connections subscribe and publish while nodes fail, and
//! the check of what they received.
//!
//! Always: a message is delivered unchanged, at most once, in the order in which its publisher's
//! calls were answered, and only to subscribers. After all faults are healed, when the network only
//! duplicates and delays: every subscriber receives it, and publishers get the right number of
//! receivers.

use crate::client::Client;
use crate::client::subscriber::{Counted, Heard, Listening, Sent, is_of};
use crate::cluster::{Cluster, Scenario};
use crate::faults::Faults;
use crate::keyspace::{Key, Shape};
use nicekv_client::Topic;
use nicekv_testkit::Random;
use std::collections::{BTreeMap, BTreeSet};

const MILLISECOND_NS: u64 = 1_000_000;
/// Chooses the seeds with messages, and their rate.
const MESSAGES: u64 = 0x6d_6573_7361_6765;
/// Actions of each client after all faults are healed.
const ACTIONS: usize = 60;
/// Time after which nodes have forgotten clients that left without notice, and all late datagrams
/// have arrived.
const FORGOTTEN_NS: u64 = 4_000 * MILLISECOND_NS;
/// Clients with at least this timeout are certainly answered after all faults are healed.
const TIMEOUT_NS: u64 = 200 * MILLISECOND_NS;
/// The faults of the final phase: the network only duplicates and delays.
const REPEATING: Faults =
    Faults { duplication: 300_000, delay: 200_000, delay_max_ns: 20 * MILLISECOND_NS, ..Faults::NONE };

/// In an eighth of the seeds clients publish and subscribe. The rest of the scenario stays as
/// drawn.
pub(crate) fn draw(mut scenario: Scenario, seed: u64) -> Scenario {
    let mut random = Random::new(!(seed ^ MESSAGES));
    let has_primaries = scenario.keyspaces.iter().any(|shape| !shape.is_quorum());
    if random.below(8) == 0 && has_primaries {
        scenario.workload.messages = random.pick(&[20, 60]);
    }
    scenario
}

/// Many messages at three members, which crash and restart.
pub(crate) fn messages(scenario: &mut Scenario) {
    scenario.keyspaces = vec![Shape::multicast(3, 1)];
    scenario.workload.keys = Key::several(0, 2);
    (scenario.workload.calls, scenario.workload.messages) = (20, 60);
    (scenario.workload.large, scenario.workload.appends) = (0, 0);
}

/// Judges what clients received during the faults. Then lets them subscribe and publish once more,
/// for at most `progress_ns`, and judges that more strictly.
pub(crate) fn judge(cluster: &mut Cluster, progress_ns: u64) -> Vec<String> {
    if cluster.clients().iter().all(|client| client.listening.is_none()) {
        return Vec::new();
    }
    let rested_ns = cluster.now_ns() + FORGOTTEN_NS;
    cluster.run_until(rested_ns, |_| false);
    let (since, before) = (cluster.tick(), cluster.epochs());
    cluster.disturb(REPEATING);
    cluster.add_messages(ACTIONS);
    let end_ns = cluster.now_ns() + progress_ns;
    cluster.run_until(end_ns, |cluster| cluster.clients().iter().all(Client::is_done));
    // Lets late datagrams arrive.
    let end_ns = cluster.now_ns() + 10 * REPEATING.delay_max_ns;
    cluster.run_until(end_ns, |_| false);
    cluster.disturb(Faults::NONE);
    let all: Vec<&Listening> =
        cluster.clients().iter().filter_map(|client| client.listening.as_ref()).collect();
    let is_in_order = cluster.scenario().faults.delay == 0;
    let mut violations = judge_all(&all, since, is_in_order);
    // A new primary does not know the subscribers at first, and a client with a short timeout may
    // get no answer.
    let is_patient = cluster.scenario().workload.timeout_ns >= TIMEOUT_NS;
    if cluster.epochs() == before && is_patient {
        violations.extend(judge_quiet(&all, since));
    }
    violations
}

/// The messages of the run by content, which is unique. Each with the client that published it.
type Messages<'a> = BTreeMap<&'a [u8], (usize, &'a Sent)>;

fn judge_all(all: &[&Listening], since: u64, is_in_order: bool) -> Vec<String> {
    let sent = all.iter().enumerate().flat_map(|(client, of)| of.sent.iter().map(move |sent| (client, sent)));
    let sent: Messages<'_> = sent.map(|(client, sent)| (&sent.message[..], (client, sent))).collect();
    let mut violations = Vec::new();
    for (client, listening) in all.iter().enumerate() {
        let mut seen = BTreeSet::new();
        for heard in &listening.heard {
            violations.extend(judge_one(client, listening, heard, &sent));
            if !seen.insert(&heard.message.message) {
                violations.push(format!("client-{} receives {} twice", client + 1, text(heard)));
            }
        }
        if is_in_order {
            violations.extend(judge_order(client, &listening.heard, since, &sent));
        }
    }
    for sent in all.iter().flat_map(|listening| &listening.sent) {
        let Some((_, Some(count))) = sent.ended else { continue };
        let most: u32 = all.iter().map(|listening| most(listening, sent)).sum();
        if count > i64::from(most) {
            let what = sent.message.escape_ascii();
            violations
                .push(format!("{what}: the publisher got {count} receivers, but at most {most} subscribe"));
        }
    }
    violations
}

fn text(heard: &Heard) -> String {
    let message = heard.message.message.split(|byte| *byte == b' ').next().unwrap_or_default();
    format!("{} of channel {}", message.escape_ascii(), heard.message.channel.escape_ascii())
}

/// Checks that a received message was published, and was delivered to its subscribers.
fn judge_one(client: usize, listening: &Listening, heard: &Heard, sent: &Messages<'_>) -> Option<String> {
    let (who, what) = (client + 1, text(heard));
    let Some((_, sent)) = sent.get(&heard.message.message[..]) else {
        return Some(format!("client-{who} receives {what}, which no client has published"));
    };
    if heard.message.channel != sent.channel {
        return Some(format!("client-{who} receives {what}, which was published to another channel"));
    }
    if !spans(listening, &sent.channel).any(|span| span.is_within(sent.begun_ns, heard.at_ns)) {
        return Some(format!("client-{who} receives {what} without a subscription"));
    }
    (heard.listeners != heard.expected).then(|| {
        format!("client-{who} delivers {what} to {:?}, expected {:?}", heard.listeners, heard.expected)
    })
}

/// The longest time during which a node may believe that a client has `count` subscribers of
/// `name`.
struct Span<'a> {
    name: &'a Topic,
    count: u32,
    from_ns: u64,
    until_ns: u64,
}

impl Span<'_> {
    fn is_within(&self, from_ns: u64, until_ns: u64) -> bool {
        self.from_ns <= until_ns && self.until_ns >= from_ns
    }
}

/// The spans of a client's subscriptions that receive messages of `channel`. A node that misses a
/// change forgets the old count after [`FORGOTTEN_NS`].
fn spans<'a>(listening: &'a Listening, channel: &'a [u8]) -> impl Iterator<Item = Span<'a>> {
    let all = &listening.counted;
    let listens = all.iter().enumerate().filter(|(_, one)| one.count > 0 && is_of(&one.name, channel));
    listens.map(|(index, one)| {
        let mut later = all[index + 1..].iter().filter(|later| later.name == one.name);
        let until_ns = later.find_map(|later| later.known).map_or(u64::MAX, |(_, ns)| ns + FORGOTTEN_NS);
        Span { name: &one.name, count: one.count, from_ns: one.set_ns, until_ns }
    })
}

/// Maximum number of a client's subscribers that nodes may know while a message is published.
fn most(listening: &Listening, sent: &Sent) -> u32 {
    let mut most: BTreeMap<&Topic, u32> = BTreeMap::new();
    for span in spans(listening, &sent.channel).filter(|span| span.is_within(sent.begun_ns, sent.ended_ns)) {
        let known = most.entry(span.name).or_default();
        *known = span.count.max(*known);
    }
    most.values().sum()
}

/// Checks the order: a message whose publish call was answered before the publisher's next call on
/// the same channel arrives first.
fn judge_order(client: usize, heard: &[Heard], since: u64, sent: &Messages<'_>) -> Option<String> {
    let known = heard.iter().filter_map(|heard| Some((heard, sent.get(&heard.message.message[..])?)));
    let known: Vec<_> = known.filter(|(_, (_, sent))| sent.begun < since).collect();
    for (index, (earlier, (publisher, first))) in known.iter().enumerate() {
        let same = |(_, (other, sent)): &&(&Heard, &(usize, &Sent))| {
            other == publisher && sent.channel == first.channel
        };
        let is_before = |(_, (_, sent)): &&(&Heard, &(usize, &Sent))| matches!(sent.ended, Some((ended, Some(_))) if ended < first.begun);
        if let Some((later, _)) = known[index + 1..].iter().filter(same).find(is_before) {
            let (who, first, then) = (client + 1, text(earlier), text(later));
            return Some(format!("client-{who} receives {first} before {then}, which was published earlier"));
        }
    }
    None
}

/// If no datagram is lost, every subscriber receives the message and is counted.
fn judge_quiet(all: &[&Listening], since: u64) -> Vec<String> {
    let mut violations = Vec::new();
    for sent in all.iter().flat_map(|listening| &listening.sent).filter(|sent| sent.begun > since) {
        let what = sent.message.split(|byte| *byte == b' ').next().unwrap_or_default().escape_ascii();
        let Some((ended, Some(count))) = sent.ended else {
            violations.push(format!("{what} was published, and its publisher got no answer"));
            continue;
        };
        let (mut least, mut most) = (0, 0);
        for (client, listening) in all.iter().enumerate() {
            let (low, high) = known(listening, &sent.channel, sent.begun, ended);
            let is_told = listening.heard.iter().any(|heard| heard.message.message == sent.message);
            if is_told && high == 0 {
                violations.push(format!("client-{} receives {what} without a subscription", client + 1));
            }
            if !is_told && low > 0 {
                violations.push(format!("client-{} subscribes, and does not receive {what}", client + 1));
            }
            (least, most) = (least + low, most + high);
        }
        if !(i64::from(least)..=i64::from(most)).contains(&count) {
            violations.push(format!(
                "{what}: the publisher got {count} receivers, but {least} to {most} subscribe"
            ));
        }
    }
    violations
}

/// Minimum and maximum number of a client's subscribers that nodes may have known between two
/// ticks.
fn known(listening: &Listening, channel: &[u8], begun: u64, ended: u64) -> (u32, u32) {
    let of_channel = listening.counted.iter().filter(|one| is_of(&one.name, channel) && one.set <= ended);
    let mut by_name: BTreeMap<&Topic, Vec<&Counted>> = BTreeMap::new();
    of_channel.for_each(|one| by_name.entry(&one.name).or_default().push(one));
    let (mut least, mut most) = (0, 0);
    for counted in by_name.values() {
        let is_known = |one: &&Counted| one.known.is_some_and(|(known, _)| known <= begun);
        let last = counted.iter().rposition(is_known);
        let counts = || counted[last.unwrap_or(0)..].iter().map(|one| one.count);
        // Before the first confirmed change there may be no subscriber.
        least += counts().min().filter(|_| last.is_some()).unwrap_or(0);
        most += counts().max().unwrap_or(0);
    }
    (least, most)
}
