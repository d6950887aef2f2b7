//! Roles over real sockets and files.

mod chunks;
mod cluster;
mod etcd;
mod log_bound;
mod metadata_stops;
mod open_vswitch;
mod support;
mod switch;
mod udp;
