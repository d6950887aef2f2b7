//! Checkers of histories.

mod brute_force;
mod histories;
mod long;
mod reference;
mod together;
