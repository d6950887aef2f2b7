//! Messages through two gateways while the primary that distributes them is killed. Some seconds
//! later they arrive again, none twice, and none at connections that are not subscribed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fixture::LabUnderTest;
use crate::load::{Redis, StopOnDrop};
use crate::{POLL_PAUSE, TIMEOUT, Victim, as_root, as_root_in_long_runs, partition_of, status, wait_for};

const CHANNEL: &str = "news";
const ELSEWHERE: &str = "weather";
const END: &str = "end";
/// Listeners: through each gateway two of the channel and two of a pattern.
const LISTENERS: usize = 4;
const PUBLISHERS: usize = 2;
const PUBLISH_PAUSE: Duration = Duration::from_millis(5);
/// Number of messages that counts as progress.
const PROGRESS: usize = 100;
/// Maximum time for the failover and until the subscriptions have reached the new primary. Far less
/// than the timeout of a publisher.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// State that all threads share.
#[derive(Default)]
struct News {
    stopped: AtomicBool,
    killed: AtomicBool,
    /// Number of messages that each listener has received.
    received: [AtomicUsize; LISTENERS],
}

/// A published message.
struct Published {
    message: String,
    /// The number of receivers, if the gateway returned it.
    receivers: Option<String>,
    is_before_kill: bool,
}

impl News {
    /// Publishes messages one after the other, until it is stopped.
    fn publish(&self, lab: &LabUnderTest, publisher: usize) -> Vec<Published> {
        let mut redis = Redis::on(lab, &format!("client-{publisher}"));
        let mut published = Vec::new();
        while !self.stopped.load(Ordering::Relaxed) {
            let message = format!("{publisher}/{}", published.len());
            let receivers = redis.ask(&["PUBLISH", CHANNEL, &message]).ok();
            let is_before_kill = !self.killed.load(Ordering::Relaxed);
            published.push(Published { message, receivers, is_before_kill });
            std::thread::sleep(PUBLISH_PAUSE);
        }
        published
    }

    /// Receives messages until the end, and returns them.
    fn listen(&self, redis: &mut Redis, listener: usize) -> Vec<String> {
        let mut received = Vec::new();
        loop {
            let push = redis.next_list();
            let [.., channel, message] = &push[..] else { panic!("{push:?}") };
            assert_eq!(channel, CHANNEL, "{push:?}");
            if message == END {
                return received;
            }
            received.push(message.clone());
            self.received[listener].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every listener has received more messages. Returns how long that took.
    fn wait_for_messages(&self) -> Duration {
        let began = Instant::now();
        let aims = self.received.each_ref().map(|received| received.load(Ordering::Relaxed) + PROGRESS);
        let is_there =
            || self.received.iter().zip(aims).all(|(received, aim)| received.load(Ordering::Relaxed) >= aim);
        while !is_there() {
            assert!(began.elapsed() < TIMEOUT, "no messages arrive: {:?}", self.received);
            std::thread::sleep(POLL_PAUSE);
        }
        began.elapsed()
    }
}

/// A connection with a subscription.
fn listener(lab: &LabUnderTest, number: usize) -> Redis {
    let mut redis = Redis::on(lab, &format!("client-{}", number % 2));
    let words = if number < 2 { ["SUBSCRIBE", CHANNEL] } else { ["PSUBSCRIBE", "n[de]ws"] };
    assert_eq!(redis.list(&words)[1..], [words[1], "1"]);
    redis
}

/// A connection that has replaced its subscription by another one.
fn former_listener(lab: &LabUnderTest, gateway: usize) -> Redis {
    let mut redis = Redis::on(lab, &format!("client-{gateway}"));
    assert_eq!(redis.list(&["SUBSCRIBE", CHANNEL]), ["subscribe", CHANNEL, "1"]);
    assert_eq!(redis.list(&["UNSUBSCRIBE", CHANNEL]), ["unsubscribe", CHANNEL, "0"]);
    assert_eq!(redis.list(&["PSUBSCRIBE", "we*"]), ["psubscribe", "we*", "1"]);
    redis
}

/// Checks that messages arrive in the order of each publisher, at most once, and that none is
/// missing that was published before the kill.
fn check(received: &[String], published: &[Vec<Published>]) {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for message in received {
        let (publisher, number) = message.split_once('/').unwrap();
        let (publisher, number) = (publisher.parse::<usize>().unwrap(), number.parse::<usize>().unwrap());
        assert_eq!(published[publisher][number].message, *message);
        let before = last.insert(publisher, number);
        assert!(before.is_none_or(|before| before < number), "{message} comes after {before:?}");
    }
    let all = LISTENERS.to_string();
    for one in published.iter().flatten().filter(|one| one.is_before_kill) {
        assert_eq!(one.receivers.as_deref(), Some(&*all), "{}", one.message);
        assert!(received.contains(&one.message), "{} is missing", one.message);
    }
}

fn go_on_when_their_primary_is_killed(hook: &str) {
    let lab = LabUnderTest::up(
        &format!("news-{hook}"),
        &["--engine", "memory", "--clients", "2", "--switch", hook],
    );
    let mut listeners: Vec<Redis> = (0..LISTENERS).map(|number| listener(&lab, number)).collect();
    let mut former_listeners: Vec<Redis> = (0..2).map(|gateway| former_listener(&lab, gateway)).collect();
    let news = News::default();
    std::thread::scope(|scope| {
        let (news, lab) = (&news, &lab);
        let _stop = StopOnDrop(&news.stopped);
        let listening: Vec<_> = listeners
            .iter_mut()
            .enumerate()
            .map(|(number, redis)| scope.spawn(move || news.listen(redis, number)))
            .collect();
        let publishers: Vec<_> =
            (0..PUBLISHERS).map(|number| scope.spawn(move || news.publish(lab, number))).collect();
        news.wait_for_messages();
        let victim = Victim::Primary.of(&partition_of(&status(lab), CHANNEL));
        let name = format!("node-{victim}");
        news.killed.store(true, Ordering::Relaxed);
        lab.succeeds(&["kill", &name]);
        let gap = news.wait_for_messages();
        assert!(gap < BACK_WITHIN, "messages arrive again after {gap:?}");
        lab.succeeds(&["start", &name]);
        wait_for(lab, |status| status["nodes"][victim]["state"] == "live" && status["ready"] == true);
        news.wait_for_messages();
        news.stopped.store(true, Ordering::Relaxed);
        let published: Vec<_> = publishers.into_iter().map(|publisher| publisher.join().unwrap()).collect();
        let mut redis = Redis::on(lab, "client-0");
        assert_eq!(redis.ask(&["PUBLISH", CHANNEL, END]), Ok(LISTENERS.to_string()));
        for received in listening {
            check(&received.join().unwrap(), &published);
        }
        assert_eq!(redis.ask(&["PUBLISH", ELSEWHERE, END]), Ok("2".into()));
        for other in &mut former_listeners {
            assert_eq!(
                other.next_list(),
                ["pmessage", "we*", ELSEWHERE, END],
                "the first message that it receives"
            );
        }
        println!("{hook}: messages arrived again after {gap:?}");
    });
    lab.down();
}

#[test]
fn messages_go_on_when_their_primary_is_killed() {
    as_root_in_long_runs("messages_go_on_when_their_primary_is_killed", || {
        go_on_when_their_primary_is_killed("tc");
    });
}

#[test]
fn messages_go_on_when_their_primary_is_killed_with_a_switch_at_xdp() {
    as_root("messages_go_on_when_their_primary_is_killed_with_a_switch_at_xdp", || {
        go_on_when_their_primary_is_killed("xdp");
    });
}
