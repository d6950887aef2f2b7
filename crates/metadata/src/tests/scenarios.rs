//! One failure at a time, and what becomes of it.
