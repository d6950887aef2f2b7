//! Where the metrics of this process are read.

use crate::role::{Role, say};
use nicekv_config::address;
use nicekv_metrics::{Page, Source};
use nicekv_operator::failure::Failure;
use std::net::{SocketAddr, TcpListener};

/// `--metrics`
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct MetricsArguments {
    /// Where Prometheus reads metrics, at /metrics; none unless this or the file says so
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::parse)]
    metrics: Option<SocketAddr>,
}

/// The endpoint of this process, if it is to have one: bound, and not served yet.
pub(crate) struct Endpoint(Option<TcpListener>);

impl MetricsArguments {
    /// What the command line says, or else the file.
    pub(crate) fn or(self, of_file: Option<SocketAddr>) -> Self {
        Self { metrics: self.metrics.or(of_file) }
    }

    /// Binds it, so that a port in use is refused before anything runs.
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
    /// Where it is.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.as_ref()?.local_addr().ok()
    }

    /// The role that answers there for these roles; none if there is no endpoint.
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
