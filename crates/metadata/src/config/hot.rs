//! What an operator may say of hot keys.

use core::time::Duration;

use nicekv_dataplane::HOT_CAPACITY;
use thiserror::Error;

/// How hot keys are found and spread. [`Default`] is what the figures of KVSwitch were best with, and a period of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotSettings {
    /// Between two readings of a switch: what follows from load follows once in it.
    pub period: Duration,
    /// Parameters of detection and of the policy.
    pub keys: nicekv_hotkeys::Config,
}

impl Default for HotSettings {
    fn default() -> Self {
        Self { period: Duration::from_secs(1), keys: nicekv_hotkeys::Config::default() }
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HotSettingsError {
    /// There would be a reading at every moment.
    #[error("period is 0, but must be positive")]
    Period,
    /// What tables hold.
    #[error("keys_max is {keys_max}, but table hot holds {HOT_CAPACITY}")]
    Capacity {
        /// What it is.
        keys_max: u32,
    },
    /// A parameter that cannot be.
    #[error(transparent)]
    Keys(#[from] nicekv_hotkeys::ConfigError),
}

impl HotSettingsError {
    /// The field that is to blame.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::Capacity { .. } => "keys_max",
            Self::Keys(error) => error.field,
        }
    }
}

impl HotSettings {
    /// The first one that cannot be.
    pub fn check(&self) -> Result<(), HotSettingsError> {
        let keys_max = self.keys.keys_max;
        if self.period.is_zero() {
            return Err(HotSettingsError::Period);
        }
        self.keys.check()?;
        if keys_max as usize > HOT_CAPACITY {
            return Err(HotSettingsError::Capacity { keys_max });
        }
        Ok(())
    }
}
