//! Trunks are closed unless the tables open them.
//!
//! To the programs, a closed trunk is not a port. Its interface is not in the map of places, so
//! frames received from it are dropped, and at XDP also frames sent to it. It has no interface in
//! the map of links, so tc sends nothing by it. Trunks that the next generation closes are closed
//! before the switchover, and trunks that it opens are opened after it. So at any time the open
//! trunks are a subset of those of one of the two generations.

use aya::maps::MapError;
use nicekv_switch::{BackendError, TableSet};

use crate::error::platform;
use crate::layout::{Cable, Place};
use crate::{KernelSwitch, Port};

impl KernelSwitch {
    /// Closes the trunks that are not open in these tables.
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

    /// Opens the trunks that are open in these tables. If the topology has changed, addresses
    /// learned at trunks are forgotten: a station may now be behind another trunk.
    pub(crate) fn open_trunks(&mut self, tables: &TableSet) -> Result<(), BackendError> {
        if self.installed.as_ref().is_none_or(|installed| installed.reroutes(tables)) {
            let trunks = self.trunks(|_| true);
            let forgotten = self.forget_stations(|place| trunks.iter().any(|(trunk, _)| *trunk == place));
            forgotten.map_err(|error| platform("remove the addresses learned at trunks", &error))?;
        }
        for (place, port) in self.trunks(|port| tables.trunks.contains(&port.index)) {
            let Port { index, ifindex, .. } = port;
            // The frame must not be redirected to the veth peer: that would bypass the programs
            // there.
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

    /// Removes the addresses that were learned at places for which `is_there` is true.
    fn forget_stations(&mut self, is_there: impl Fn(u32) -> bool) -> Result<(), MapError> {
        let known: Vec<_> = self.maps.macs.iter().collect::<Result<_, _>>()?;
        for (mac, _) in known.into_iter().filter(|(_, place)| is_there(*place)) {
            match self.maps.macs.remove(&mac) {
                // The kernel has evicted the entry in the meantime.
                Err(MapError::KeyNotFound) => {}
                removed => removed?,
            }
        }
        Ok(())
    }
}
