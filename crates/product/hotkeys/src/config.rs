//! Parameters of hot-key detection and replication, with their bounds.

/// Upper bound of `keys_max` (hot keys, and slots of a HashPipe): the kernel's maps have room for
/// as many.
pub const KEYS_MAX: u32 = 16_384;
/// Upper bound of `values_max` (keys with a copy in the switch): the kernel's maps have room for as
/// many.
pub const VALUES_MAX: u32 = 1024;
/// Upper bound of `stages`: the kernel program's loop over the stages is unrolled.
pub const STAGES_MAX: u32 = 8;
/// Upper bound of a key's holders: which ones are valid is a bit mask in one 64-bit word.
pub const HOLDERS_MAX: u16 = 64;
/// Shares are in parts per million.
pub const MILLION: u32 = 1_000_000;

/// Parameters of detection and of the policy. Shares are in parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// K: maximum number of hot keys, and of the HashPipe's slots over all stages.
    pub keys_max: u32,
    /// d: number of stages of the HashPipe.
    pub stages: u32,
    /// α: weight of the previous period in a prediction.
    pub history_ppm: u32,
    /// A key with fewer requests in a period is not watched, and T is never below this: such counts
    /// are mostly chance.
    pub requests_min: u32,
    /// T₀, as a share of the mean load of a server.
    pub threshold_start_ppm: u32,
    /// Lower bound of T, as a share of the mean load of a server.
    pub threshold_min_ppm: u32,
    /// γ: T is multiplied by this factor while load is uneven, and divided by it after load was
    /// even for some periods.
    pub threshold_factor_ppm: u32,
    /// Load is uneven if the most loaded server exceeds the mean by more than this share of the
    /// mean.
    pub imbalance_max_ppm: u32,
    /// Periods of even load before T rises.
    pub calm_periods: u32,
    /// A key's holders change only if its load is beyond a border by more than this share of the
    /// load, plus what chance explains.
    pub slack_ppm: u32,
    /// Maximum number of keys with a copy in the switch itself (H9); 0: none.
    pub values_max: u32,
    /// Maximum number of servers that hold a key besides its owner; 0: only the switch answers
    /// instead of owners, as in NetCache.
    pub holders_max: u32,
}

impl Default for Config {
    /// K is the paper's value; α, γ, T₀ and the maximum imbalance were chosen by experiment
    /// (`nicekv bench kvswitch-fig9`).
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
