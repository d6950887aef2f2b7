//! Messages and their bytes.

mod c_header;
mod codec;
mod golden;
mod long_keys;
