//! `[hot]`: how hot keys are found and copied, in keyspaces with `balancing = "hot"`. Shares are in
//! parts per million.

use nicekv_metadata::HotSettings;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HotSection {
    pub period_ms: u64,
    pub keys_max: u32,
    pub stages: u32,
    pub history_ppm: u32,
    pub requests_min: u32,
    pub threshold_start_ppm: u32,
    pub threshold_min_ppm: u32,
    pub threshold_factor_ppm: u32,
    pub imbalance_max_ppm: u32,
    pub calm_periods: u32,
    pub slack_ppm: u32,
    pub values_max: u32,
    pub holders_max: u32,
}

/// Command-line flags for copies of hot keys.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct HotArguments {
    /// Hot keys (balancing=hot) whose gets the switch answers itself [default: 64]
    #[arg(long, value_name = "N")]
    hot_values: Option<u32>,
    /// Nodes that hold copies of a hot key besides its members; 0 with --hot-values N is NetCache [default: 31]
    #[arg(long, value_name = "N")]
    hot_holders: Option<u32>,
}

impl HotArguments {
    pub fn section(&self) -> HotSection {
        HotSection::default().with(self.hot_values, self.hot_holders)
    }
}

impl Default for HotSection {
    fn default() -> Self {
        let HotSettings { period, keys } = HotSettings::default();
        Self {
            period_ms: period.as_millis() as u64,
            keys_max: keys.keys_max,
            stages: keys.stages,
            history_ppm: keys.history_ppm,
            requests_min: keys.requests_min,
            threshold_start_ppm: keys.threshold_start_ppm,
            threshold_min_ppm: keys.threshold_min_ppm,
            threshold_factor_ppm: keys.threshold_factor_ppm,
            imbalance_max_ppm: keys.imbalance_max_ppm,
            calm_periods: keys.calm_periods,
            slack_ppm: keys.slack_ppm,
            values_max: keys.values_max,
            holders_max: keys.holders_max,
        }
    }
}

impl HotSection {
    /// The same settings, with those values replaced that are given.
    pub fn with(self, values_max: Option<u32>, holders_max: Option<u32>) -> Self {
        Self {
            values_max: values_max.unwrap_or(self.values_max),
            holders_max: holders_max.unwrap_or(self.holders_max),
            ..self
        }
    }

    pub fn settings(&self) -> HotSettings {
        let Self { keys_max, stages, history_ppm, requests_min, calm_periods, slack_ppm, .. } = *self;
        HotSettings {
            period: Duration::from_millis(self.period_ms),
            keys: nicekv_hotkeys::Config {
                keys_max,
                stages,
                history_ppm,
                requests_min,
                threshold_start_ppm: self.threshold_start_ppm,
                threshold_min_ppm: self.threshold_min_ppm,
                threshold_factor_ppm: self.threshold_factor_ppm,
                imbalance_max_ppm: self.imbalance_max_ppm,
                calm_periods,
                slack_ppm,
                values_max: self.values_max,
                holders_max: self.holders_max,
            },
        }
    }
}
