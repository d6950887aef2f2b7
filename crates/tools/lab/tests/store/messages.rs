//! Messages through two gateways while the primary that tells them is killed: some seconds later they come again, none twice, none to strangers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fixture::LabUnderTest;
use crate::load::{Redis, StopOnDrop};
use crate::{PATIENCE, POLL_PAUSE, Victim, as_root, partition_of, status, wait_for};

const CHANNEL: &str = "news";
const ELSEWHERE: &str = "weather";
const END: &str = "end";
/// Who listens: two by the channel and two by a pattern, through either gateway.
const LISTENERS: usize = 4;
const PUBLISHERS: usize = 2;
const PUBLISH_PAUSE: Duration = Duration::from_millis(5);
/// Messages that show that they come.
const PROGRESS: usize = 100;
/// A primary is suspected, another one leads, and what listens is known to it: far less than the time that a publisher waits.
const BACK_WITHIN: Duration = Duration::from_secs(10);

/// What is shared by all threads.
#[derive(Default)]
struct News {
    stopped: AtomicBool,
    killed: AtomicBool,
    /// How much each listener has heard.
    heard: [AtomicUsize; LISTENERS],
}

/// What became of a message.
struct Published {
    message: String,
    /// How many were told, if that is known.
    told: Option<String>,
    is_before_kill: bool,
}

impl News {
    /// Publishes one after the other, until it is stopped.
    fn publish(&self, lab: &LabUnderTest, publisher: usize) -> Vec<Published> {
        let mut redis = Redis::on(lab, &format!("client-{publisher}"));
        let mut published = Vec::new();
        while !self.stopped.load(Ordering::Relaxed) {
            let message = format!("{publisher}/{}", published.len());
            let told = match redis.ask(&["PUBLISH", CHANNEL, &message]) {
                Err(line) if line.starts_with(':') => Some(line),
                _ => None,
            };
            let is_before_kill = !self.killed.load(Ordering::Relaxed);
            published.push(Published { message, told, is_before_kill });
            std::thread::sleep(PUBLISH_PAUSE);
        }
        published
    }

    /// All that a listener hears until the end.
    fn listen(&self, redis: &mut Redis, listener: usize) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let told = redis.hear_list();
            let [.., channel, message] = &told[..] else { panic!("{told:?}") };
            assert_eq!(channel, CHANNEL, "{told:?}");
            if message == END {
                return heard;
            }
            heard.push(message.clone());
            self.heard[listener].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How long it takes until everybody has heard more.
    fn wait_for_messages(&self) -> Duration {
        let began = Instant::now();
        let aims = self.heard.each_ref().map(|heard| heard.load(Ordering::Relaxed) + PROGRESS);
        let is_there =
            || self.heard.iter().zip(aims).all(|(heard, aim)| heard.load(Ordering::Relaxed) >= aim);
        while !is_there() {
            assert!(began.elapsed() < PATIENCE, "messages do not come: {:?}", self.heard);
            std::thread::sleep(POLL_PAUSE);
        }
        began.elapsed()
    }
}

/// A connection that listens.
fn listener(lab: &LabUnderTest, number: usize) -> Redis {
    let mut redis = Redis::on(lab, &format!("client-{}", number % 2));
    let words = if number < 2 { ["SUBSCRIBE", CHANNEL] } else { ["PSUBSCRIBE", "n[de]ws"] };
    assert_eq!(redis.list(&words)[1..], [words[1], ":1"]);
    redis
}

/// One that did, and listens to something else now.
fn stranger(lab: &LabUnderTest, gateway: usize) -> Redis {
    let mut redis = Redis::on(lab, &format!("client-{gateway}"));
    assert_eq!(redis.list(&["SUBSCRIBE", CHANNEL]), ["subscribe", CHANNEL, ":1"]);
    assert_eq!(redis.list(&["UNSUBSCRIBE", CHANNEL]), ["unsubscribe", CHANNEL, ":0"]);
    assert_eq!(redis.list(&["PSUBSCRIBE", "we*"]), ["psubscribe", "we*", ":1"]);
    redis
}

/// Strictly in the order of each publisher, so none comes twice; and nothing that was told to all before the primary was killed is missing.
fn check(heard: &[String], published: &[Vec<Published>]) {
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for message in heard {
        let (publisher, number) = message.split_once('/').unwrap();
        let (publisher, number) = (publisher.parse::<usize>().unwrap(), number.parse::<usize>().unwrap());
        assert_eq!(published[publisher][number].message, *message);
        let before = last.insert(publisher, number);
        assert!(before.is_none_or(|before| before < number), "{message} comes after {before:?}");
    }
    let of_all = format!(":{LISTENERS}");
    for one in published.iter().flatten().filter(|one| one.is_before_kill) {
        assert_eq!(one.told.as_deref(), Some(&*of_all), "{}", one.message);
        assert!(heard.contains(&one.message), "{} is missing", one.message);
    }
}

fn go_on_when_their_primary_is_killed(hook: &str) {
    let lab = LabUnderTest::up(
        &format!("news-{hook}"),
        &["--engine", "memory", "--clients", "2", "--switch", hook],
    );
    let mut listeners: Vec<Redis> = (0..LISTENERS).map(|number| listener(&lab, number)).collect();
    let mut strangers: Vec<Redis> = (0..2).map(|gateway| stranger(&lab, gateway)).collect();
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
        assert!(gap < BACK_WITHIN, "messages come again after {gap:?}");
        lab.succeeds(&["start", &name]);
        wait_for(lab, |status| status["nodes"][victim]["state"] == "live" && status["ready"] == true);
        news.wait_for_messages();
        news.stopped.store(true, Ordering::Relaxed);
        let published: Vec<_> = publishers.into_iter().map(|publisher| publisher.join().unwrap()).collect();
        let mut redis = Redis::on(lab, "client-0");
        assert_eq!(redis.ask(&["PUBLISH", CHANNEL, END]), Err(format!(":{LISTENERS}")));
        for heard in listening {
            check(&heard.join().unwrap(), &published);
        }
        assert_eq!(redis.ask(&["PUBLISH", ELSEWHERE, END]), Err(":2".into()));
        for stranger in &mut strangers {
            assert_eq!(stranger.hear_list(), ["pmessage", "we*", ELSEWHERE, END], "the first that it hears");
        }
        println!("{hook}: messages came again after {gap:?}");
    });
    lab.down();
}

#[test]
fn messages_go_on_when_their_primary_is_killed() {
    as_root("messages_go_on_when_their_primary_is_killed", || go_on_when_their_primary_is_killed("tc"));
}

#[test]
fn messages_go_on_when_their_primary_is_killed_with_a_switch_at_xdp() {
    as_root("messages_go_on_when_their_primary_is_killed_with_a_switch_at_xdp", || {
        go_on_when_their_primary_is_killed("xdp");
    });
}
