//! Traces of requests, applied to racks period by period.

use super::popularity::{Popularity, key};
use super::rack::{Balancer, Period, Rack, Request, Setup};
use crate::splitmix::Random;
use nicekv_hotkeys::{HotKey, imbalance};

/// Servers of a rack.
pub(crate) const SERVERS: u16 = 32;
/// Requests per server in a period: with fewer, chance alone causes a visible λ.
pub(crate) const SERVER_REQUESTS: u64 = 160_000;

/// Shares of special requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Share of writes, drawn for each request.
    pub(crate) writes: f64,
    /// Share of keys whose values are too large for a switch, drawn for each key.
    pub(crate) big: f64,
}

impl Mix {
    pub(crate) const GETS: Self = Self { writes: 0.0, big: 0.0 };
}

/// λ of a perfectly even load, by chance alone: √(2 ÷ πn) for n requests per server.
pub(crate) fn chance() -> f64 {
    (2.0 / (std::f64::consts::PI * SERVER_REQUESTS as f64)).sqrt()
}

/// The server that owns a key, by its digest. The servers of a rack are neighbours.
fn home(key: &HotKey, servers: u16) -> u16 {
    let high = key.digest.match_value() >> 96;
    ((high * u128::from(servers)) >> 32) as u16
}

/// The trace of one rack.
pub(crate) struct RackTrace<'a, R = Rack> {
    popularity: &'a Popularity,
    mix: Mix,
    random: Random,
    pub(crate) rack: R,
}

impl<'a, R: Balancer> RackTrace<'a, R> {
    /// The requests do not depend on the rack.
    pub(crate) fn new(popularity: &'a Popularity, mix: Mix, rack: R) -> Self {
        Self { popularity, mix, random: Random(SERVERS.into()), rack }
    }

    /// Runs a period; `see` gets the rank of each request.
    pub(crate) fn period(&mut self, mut see: impl FnMut(u32)) -> Result<Period, R::Error> {
        for _ in 0..SERVER_REQUESTS * u64::from(SERVERS) {
            let rank = self.popularity.sample(&mut self.random);
            see(rank);
            let request = request(rank, self.mix, &mut self.random);
            self.rack.request(request)?;
        }
        self.rack.end_period(|key| home(key, SERVERS))
    }
}

fn request(rank: u32, Mix { writes, big }: Mix, random: &mut Random) -> Request {
    let key = key(rank);
    let is_write = writes > 0.0 && random.fraction() < writes;
    // Decided by bits of the digest that do not select the owner.
    let is_big = (key.digest.match_value() as u32 as f64) < big * f64::from(u32::MAX);
    Request { key, owner: home(&key, SERVERS), is_write, is_big }
}

/// Racks below a switch that balances them, as each rack balances its servers (KVSwitch §5.2,
/// scalability).
pub(crate) struct Racks<'a> {
    popularity: &'a Popularity,
    random: Random,
    spine: Rack,
    racks: Vec<Rack>,
}

impl<'a> Racks<'a> {
    pub(crate) fn new(popularity: &'a Popularity, setup: Setup, racks: u16) -> Self {
        let spine = Rack::new(Setup { servers: racks, ..setup }, 2);
        let racks = (0..racks).map(|rack| Rack::new(setup, 3 + u64::from(rack))).collect();
        Self { popularity, random: Random(5), spine, racks }
    }

    /// Runs a period; λ of all servers.
    pub(crate) fn period(&mut self) -> f64 {
        let racks = self.racks.len() as u16;
        // A copy in another rack is at the server with the same number as the owner.
        let in_rack = |key: &HotKey| home(key, racks * SERVERS) % SERVERS;
        for _ in 0..SERVER_REQUESTS * u64::from(SERVERS) * u64::from(racks) {
            let key = key(self.popularity.sample(&mut self.random));
            let request = Request { key, owner: home(&key, racks), is_write: false, is_big: false };
            let rack = self.spine.request(request).expect("nothing is answered by the switch");
            self.racks[usize::from(rack)].request(Request { owner: in_rack(&key), ..request });
        }
        self.spine.end_period(|key| home(key, racks));
        let loads: Vec<u64> = self.racks.iter_mut().flat_map(|rack| rack.end_period(in_rack).loads).collect();
        imbalance(&loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvswitch::rack::System;
    use nicekv_hotkeys::Config;

    #[test]
    fn servers_own_equal_shares_of_keys_and_racks_hold_neighbours() {
        let mut counts = [0_u32; 64];
        for rank in 0..64_000 {
            let server = home(&key(rank), 64);
            counts[usize::from(server)] += 1;
            assert_eq!(home(&key(rank), 2), server / 32);
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    /// With uniform keys λ is that of the formula: no other imbalance is in the model.
    #[test]
    fn an_even_load_has_the_lambda_of_chance() {
        let popularity = Popularity::new(0.0);
        let setup = Setup {
            system: System::Original,
            config: Config::default(),
            servers: SERVERS,
            confirm_requests: 1,
        };
        let Ok(period) = RackTrace::new(&popularity, Mix::GETS, Rack::new(setup, 1)).period(|_| ());
        let lambda = imbalance(&period.loads);
        assert!((lambda / chance() - 1.0).abs() < 0.4, "{lambda} beside {}", chance());
    }
}
