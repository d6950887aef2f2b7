//! The client library.

mod bundles;
mod facade;
mod quorum;
