//! Trunks are closed unless the tables open them.
//!
//! To the programs, a closed trunk is not a port: its interface has no place, so frames received from it are dropped, and at XDP also frames sent to it;
//! and it has no cable, so nothing is sent by it at tc. Trunks that the next generation closes are closed before the switchover, those that it
//! opens are opened after it: never are more trunks open than one of the two generations allows.

use aya::maps::MapError;
use nicekv_switch::{BackendError, TableSet};

use crate::error::platform;
use crate::layout::{Cable, Place};
use crate::{KernelSwitch, Port};

impl KernelSwitch {
    /// Closes all trunks that are closed in these tables.
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

    /// Opens all trunks that are open in these tables. If the topology has changed, addresses learned at trunks are forgotten: a station may now be
    /// behind another trunk.
    pub(crate) fn open_trunks(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        if self.installed.as_ref().is_none_or(|installed| installed.reroutes(tables)) {
            let trunks = self.trunks(|_| true);
            let forgotten = self.forget_stations(|place| trunks.iter().any(|(trunk, _)| *trunk == place));
            forgotten.map_err(|error| platform("forget who is behind trunks", &error))?;
        }
        for (place, port) in self.trunks(|port| tables.trunks.contains(&port.index)) {
            let Port { index, ifindex, .. } = port;
            // A frame redirected to the veth peer would bypass the programs there.
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

    /// Removes learned addresses by place.
    fn forget_stations(&mut self, is_there: impl Fn(u32) -> bool) -> Result<(), MapError> {
        let known: Vec<_> = self.maps.macs.iter().collect::<Result<_, _>>()?;
        for (mac, _) in known.into_iter().filter(|(_, place)| is_there(*place)) {
            match self.maps.macs.remove(&mac) {
                // The entry was evicted in the meantime.
                Err(MapError::KeyNotFound) => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}
