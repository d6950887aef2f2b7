//! Parameters and their bounds.

/// Hot keys, and so slots of a HashPipe, at most: the kernel's maps have room for as many.
pub const KEYS_MAX: u32 = 16_384;
/// Keys with a copy in the switch, at most: the kernel's maps have room for as many.
pub const VALUES_MAX: u32 = 1024;
/// Stages of a HashPipe, at most: the program's loop over them is unrolled.
pub const STAGES_MAX: u32 = 8;
/// Holders of a key, at most: its valid registers are the bits of one word.
pub const HOLDERS_MAX: u16 = 64;
/// Shares are in millionths.
pub const MILLION: u32 = 1_000_000;

/// Parameters of detection and of the policy. Shares are in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// K: hot keys at most, and slots of the HashPipe over all stages.
    pub keys_max: u32,
    /// d: stages of the HashPipe.
    pub stages: u32,
    /// α: weight of the previous period in a prediction.
    pub history_ppm: u32,
    /// A key with fewer requests in a period is not watched, and T is never below this: so few are chance.
    pub requests_min: u32,
    /// T₀, as a share of the mean load of a server.
    pub threshold_start_ppm: u32,
    /// Lower bound of T, as a share of the mean load of a server.
    pub threshold_min_ppm: u32,
    /// γ: T is multiplied by this while load is uneven, and divided by it after load was even for long.
    pub threshold_factor_ppm: u32,
    /// How far the most loaded server may be above the mean, as a share of the mean.
    pub imbalance_max_ppm: u32,
    /// Periods of even load before T rises.
    pub calm_periods: u32,
    /// How far beyond a border a key's load must be before its holders change, as a share of the load; in addition to chance.
    pub slack_ppm: u32,
    /// Keys with a copy in the switch itself (H9), at most; 0: none.
    pub values_max: u32,
    /// Servers that hold a key besides its owner, at most; 0: only the switch answers for owners, as in NetCache.
    pub holders_max: u32,
}

impl Default for Config {
    /// K is the paper's; α, γ, T₀ and the imbalance were chosen by `nicekv bench kvswitch-fig9`.
    fn default() -> Self {
        Self {
            keys_max: 10_000,
            stages: 4,
            history_ppm: 500_000,
            requests_min: 4,
            threshold_start_ppm: 100_000,
            threshold_min_ppm: 400,
            threshold_factor_ppm: 500_000,
            imbalance_max_ppm: 15_000,
            calm_periods: 8,
            slack_ppm: 50_000,
            values_max: 64,
            holders_max: u32::from(HOLDERS_MAX) - 1,
        }
    }
}

/// A parameter out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}, but must be from {least} to {most}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
    /// Its lower bound.
    pub least: u32,
    /// Its upper bound.
    pub most: u32,
}

impl Config {
    /// Checks all parameters.
    ///
    /// # Errors
    /// The first one that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        let below_all = MILLION - 1;
        let bounds = [
            ("keys_max", self.keys_max, 1, KEYS_MAX),
            // Each stage has at least one slot.
            ("stages", self.stages, 1, STAGES_MAX.min(self.keys_max)),
            ("history_ppm", self.history_ppm, 0, below_all),
            ("requests_min", self.requests_min, 1, u32::MAX),
            ("threshold_start_ppm", self.threshold_start_ppm, 1, 100 * MILLION),
            ("threshold_min_ppm", self.threshold_min_ppm, 1, self.threshold_start_ppm),
            ("threshold_factor_ppm", self.threshold_factor_ppm, 1, below_all),
            ("imbalance_max_ppm", self.imbalance_max_ppm, 1, 100 * MILLION),
            ("calm_periods", self.calm_periods, 1, 10_000),
            ("slack_ppm", self.slack_ppm, 0, below_all),
            ("values_max", self.values_max, 0, VALUES_MAX),
            ("holders_max", self.holders_max, 0, u32::from(HOLDERS_MAX) - 1),
        ];
        let wrong = bounds.into_iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
        wrong.map_or(Ok(()), |(field, value, least, most)| Err(ConfigError { field, value, least, most }))
    }

    /// w: slots per stage.
    pub fn stage_slots(&self) -> u32 {
        self.keys_max / self.stages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn parameter_out_of_bounds_is_named() {
        type Edit = fn(&mut Config);
        let edits: [(&str, Edit); 13] = [
            ("keys_max", |config| config.keys_max = 0),
            ("keys_max", |config| config.keys_max = KEYS_MAX + 1),
            ("stages", |config| config.stages = 0),
            ("stages", |config| config.stages = STAGES_MAX + 1),
            ("stages", |config| (config.keys_max, config.stages) = (3, 4)),
            ("history_ppm", |config| config.history_ppm = MILLION),
            ("threshold_start_ppm", |config| config.threshold_start_ppm = 0),
            ("threshold_min_ppm", |config| config.threshold_min_ppm = config.threshold_start_ppm + 1),
            ("threshold_factor_ppm", |config| config.threshold_factor_ppm = MILLION),
            ("imbalance_max_ppm", |config| config.imbalance_max_ppm = 0),
            ("calm_periods", |config| config.calm_periods = 0),
            ("values_max", |config| config.values_max = VALUES_MAX + 1),
            ("holders_max", |config| config.holders_max = u32::from(HOLDERS_MAX)),
        ];
        for (field, edit) in edits {
            let mut config = Config::default();
            edit(&mut config);
            let error = config.check().unwrap_err();
            assert_eq!(error.field, field);
            assert!(error.to_string().starts_with(field), "{error}");
        }
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn slots_of_all_stages_are_at_most_keys_max() {
        for (keys_max, stages) in [(1, 1), (10, 4), (10_000, 8), (KEYS_MAX, STAGES_MAX)] {
            let config = Config { keys_max, stages, ..Config::default() };
            config.check().unwrap();
            let slots = config.stage_slots();
            assert!(slots >= 1 && slots * stages <= keys_max && (slots + 1) * stages > keys_max);
        }
    }
}
