//! Trunks are closed, unless the tables open them.
//!
//! A closed one is no port to the programs: its interface has no place, so that what comes by it is dropped, and at XDP what leaves by it; and no
//! cable, so that at tc nothing leaves by it. Those that the next generation has closed are closed before it is in force, those that it
//! has open are opened after: of two generations never more is open than one of them says.

use aya::maps::MapError;
use nicekv_switch::{BackendError, TableSet};

use crate::error::platform;
use crate::layout::{Cable, Place};
use crate::{KernelSwitch, Port};

impl KernelSwitch {
    /// Closes all trunks that these tables do not have open.
    pub(crate) fn close_trunks(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        let closed = self.trunks(|port| !tables.trunks.contains(&port.index));
        let close = |switch: &mut Self| {
            closed.iter().try_for_each(|(place, port)| {
                switch.maps.cables.set(*place, Cable::default(), 0)?;
                switch.maps.places.set(switch.ports.cell(port.ifindex), Place::default(), 0)
            })
        };
        close(self).map_err(|error| platform("close trunks", &error))
    }

    /// Opens all that they have open. If they lead otherwise than the tables before, what was learned at trunks is forgotten: who was behind one may be
    /// behind another.
    pub(crate) fn open_trunks(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        if self.installed.as_ref().is_none_or(|installed| installed.reroutes(tables)) {
            let trunks = self.trunks(|_| true);
            let forgotten = self.forget_stations(|place| trunks.iter().any(|(trunk, _)| *trunk == place));
            forgotten.map_err(|error| platform("forget who is behind trunks", &error))?;
        }
        for (place, port) in self.trunks(|port| tables.trunks.contains(&port.index)) {
            let Port { index, ifindex, .. } = port;
            // What is handed over past the queue of the far end is not seen by the programs there.
            let cable = Cable { ifindex, has_peer: 0 };
            let known = Place { ifindex, port: place, number: index.into() };
            let opened = self.maps.cables.set(place, cable, 0);
            opened
                .and_then(|()| self.maps.places.set(self.ports.cell(ifindex), known, 0))
                .map_err(|error| platform("open a trunk", &error))?;
        }
        Ok(())
    }

    fn trunks(&self, such: impl Fn(&Port) -> bool) -> Vec<(u32, Port)> {
        self.ports.iter().filter(|(_, port)| port.is_trunk && such(port)).collect()
    }

    /// Of the learned addresses, those at such places.
    fn forget_stations(&mut self, is_there: impl Fn(u32) -> bool) -> Result<(), MapError> {
        let known: Vec<_> = self.maps.macs.iter().collect::<Result<_, _>>()?;
        for (mac, _) in known.into_iter().filter(|(_, place)| is_there(*place)) {
            match self.maps.macs.remove(&mac) {
                // Another has taken its room meanwhile.
                Err(MapError::KeyNotFound) => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}
