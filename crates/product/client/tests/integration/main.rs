//! Integration tests of the client library.

mod bundles;
mod facade;
mod quorum;
