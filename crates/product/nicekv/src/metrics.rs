//! The metrics endpoint of this process.

use crate::role::{Role, say};
use nicekv_config::address;
use nicekv_metrics::{Page, Source};
use nicekv_operator::failure::Failure;
use std::net::{SocketAddr, TcpListener};

/// `--metrics`
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct MetricsArguments {
    /// Address where Prometheus reads metrics, at /metrics [default: from the file, or none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::parse)]
    metrics: Option<SocketAddr>,
}

/// The bound endpoint, if metrics are served; requests are not answered yet.
pub(crate) struct Endpoint(Option<TcpListener>);

impl MetricsArguments {
    /// The flag if present, otherwise the setting of the file.
    pub(crate) fn or(self, of_file: Option<SocketAddr>) -> Self {
        Self { metrics: self.metrics.or(of_file) }
    }

    /// Binds the address early, so that a port in use is an error before any role runs.
    pub(crate) fn bind(self) -> Result<Endpoint, Failure> {
        let bound = self.metrics.map(|address| {
            TcpListener::bind(address).map_err(|error| {
                let reason = address::bind_reason(&error);
                Failure::Environment(format!("cannot serve metrics on {address}: {reason}"))
            })
        });
        Ok(Endpoint(bound.transpose()?))
    }
}

impl Endpoint {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.as_ref()?.local_addr().ok()
    }

    /// The role that serves the metrics of these sources; `None` without an endpoint.
    pub(crate) fn role(self, sources: Vec<Source>) -> Result<Option<Role>, Failure> {
        let Some(listener) = self.0 else { return Ok(None) };
        let address = listener.local_addr().map_err(Failure::environment)?;
        say(format_args!("metrics at http://{address}/metrics"))?;
        let page = Page::new(sources);
        Ok(Some(Box::new(move |stop| {
            nicekv_metrics::serve(listener, page, stop).map_err(|error| format!("metrics: {error}"))
        })))
    }
}
