//! Settings for hot keys.

use core::time::Duration;

use nicekv_switch::{HOT_CAPACITY, HOT_HOLDERS_MAX, HOT_VALUES_MAX};
use thiserror::Error;

const _: () = assert!(nicekv_hotkeys::VALUES_MAX as usize == HOT_VALUES_MAX);

/// Detection and spreading of hot keys. [`Default`] has the best parameters of KVSwitch's
/// evaluation, and a period of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotSettings {
    /// Interval at which a switch's counts are read and its entries are changed because of load.
    pub period: Duration,
    /// Parameters of detection and policy; `holders_max` counts nodes that are not members of the
    /// key's partition.
    pub keys: nicekv_hotkeys::Config,
}

impl Default for HotSettings {
    fn default() -> Self {
        let keys = nicekv_hotkeys::Config::default();
        let holders_max = keys.holders_max.min(HOT_HOLDERS_MAX as u32);
        Self { period: Duration::from_secs(1), keys: nicekv_hotkeys::Config { holders_max, ..keys } }
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HotSettingsError {
    /// The period is zero.
    #[error("period is 0, but must be positive")]
    Period,
    /// More keys than the table can hold.
    #[error("keys_max is {keys_max}, but table hot holds {HOT_CAPACITY}")]
    Capacity { keys_max: u32 },
    /// More holders than an entry can have.
    #[error("holders_max is {holders_max}, but must be from 0 to {HOT_HOLDERS_MAX}")]
    Holders { holders_max: u32 },
    /// A parameter is out of bounds.
    #[error(transparent)]
    Keys(#[from] nicekv_hotkeys::ConfigError),
}

impl HotSettingsError {
    /// The name of the invalid field.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::Capacity { .. } => "keys_max",
            Self::Holders { .. } => "holders_max",
            Self::Keys(error) => error.field,
        }
    }
}

impl HotSettings {
    /// Checks the settings; the error names the first invalid one.
    pub fn check(&self) -> Result<(), HotSettingsError> {
        let nicekv_hotkeys::Config { keys_max, holders_max, .. } = self.keys;
        if self.period.is_zero() {
            return Err(HotSettingsError::Period);
        }
        if holders_max as usize > HOT_HOLDERS_MAX {
            return Err(HotSettingsError::Holders { holders_max });
        }
        self.keys.check()?;
        if keys_max as usize > HOT_CAPACITY {
            return Err(HotSettingsError::Capacity { keys_max });
        }
        Ok(())
    }

    /// Upper bound of the nodes that have copies of a key and are not members of its partition.
    pub(crate) fn holders_max(&self) -> usize {
        self.keys.holders_max as usize
    }

    /// Parameters of a plan. It places copies among all nodes including members, so members are
    /// added to its bounds.
    pub(crate) fn keys_to_plan(&self) -> nicekv_hotkeys::Config {
        let all = nicekv_hotkeys::Config::default().holders_max;
        let holders_max = if self.keys.holders_max == 0 { 0 } else { all };
        nicekv_hotkeys::Config { holders_max, ..self.keys }
    }
}
