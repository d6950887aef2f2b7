//! Access to maps of the object by name, and to per-CPU values.

use aya::Ebpf;
use aya::maps::{Map, MapData, MapError, PerCpuArray, PerCpuValues};

pub(crate) fn take_map(programs: &mut Ebpf, name: &str) -> Result<Map, MapError> {
    programs.take_map(name).ok_or_else(|| MapError::InvalidName { name: name.into() })
}

pub(crate) fn take_data(programs: &mut Ebpf, name: &str) -> Result<MapData, MapError> {
    match take_map(programs, name)? {
        Map::ArrayOfMaps(data) | Map::Array(data) | Map::PerCpuArray(data) => Ok(data),
        _ => Err(MapError::InvalidName { name: name.into() }),
    }
}

pub(crate) fn sum(map: &PerCpuArray<MapData, u64>, index: u32) -> Result<u64, MapError> {
    Ok(map.get(&index, 0)?.iter().sum())
}

/// Sets a per-CPU counter: the first CPU gets the whole value.
pub(crate) fn write(map: &mut PerCpuArray<MapData, u64>, index: u32, value: u64) -> Result<(), MapError> {
    let processors = aya::util::nr_cpus().map_err(|(_, error)| MapError::IoError(error))?;
    let mut values = vec![0; processors];
    values[0] = value;
    map.set(index, PerCpuValues::try_from(values).expect("one value per processor"), 0)
}
