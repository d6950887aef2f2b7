//! MAC learning: the port on which each MAC address was last seen, for forwarding traffic that is
//! not for a vring.

use alloc::collections::BTreeMap;

/// Capacity in addresses; the least recently learned one is evicted.
pub const MAC_CAPACITY: usize = 4096;

/// Where stations are.
#[derive(Clone, Debug, Default)]
pub struct MacTable {
    /// For each MAC address, the port where it was learned, and when.
    ports: BTreeMap<[u8; 6], (u16, u64)>,
    learned_total: u64,
}

impl MacTable {
    /// Notes that a station sends from a port. Returns whether that is new.
    pub fn learn(&mut self, mac: [u8; 6], port: u16) -> bool {
        if self.ports.get(&mac).is_some_and(|&(known, _)| known == port) {
            return false;
        }
        if self.ports.len() == MAC_CAPACITY && !self.ports.contains_key(&mac) {
            let oldest =
                self.ports.iter().min_by_key(|(_, (_, learned_at))| *learned_at).map(|(mac, _)| *mac);
            self.ports.remove(&oldest.expect("a full table has an oldest entry"));
        }
        self.learned_total += 1;
        self.ports.insert(mac, (port, self.learned_total));
        true
    }

    /// Every station with its port, ascending by address.
    pub fn iter(&self) -> impl Iterator<Item = ([u8; 6], u16)> + '_ {
        self.ports.iter().map(|(mac, (port, _))| (*mac, *port))
    }

    /// Forgets the addresses that were learned at a port.
    pub fn forget(&mut self, port: u16) {
        self.ports.retain(|_, (known, _)| *known != port);
    }

    /// The port of a station.
    pub fn lookup(&self, mac: [u8; 6]) -> Option<u16> {
        self.ports.get(&mac).map(|&(port, _)| port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u16) -> [u8; 6] {
        let [high, low] = number.to_be_bytes();
        [2, 0, 0, 0, high, low]
    }

    #[test]
    fn table_is_bounded_and_evicts_the_oldest() {
        let mut table = MacTable::default();
        for number in 0..MAC_CAPACITY as u16 {
            table.learn(mac(number), 1);
        }
        table.learn(mac(0), 2);
        assert!(table.learn(mac(5000), 3) && !table.learn(mac(5000), 3));
        assert_eq!(table.ports.len(), MAC_CAPACITY);
        assert_eq!(table.lookup(mac(0)), Some(2));
        assert_eq!(table.lookup(mac(1)), None);
        assert_eq!(table.lookup(mac(5000)), Some(3));
    }
}
