//! Tests of the history checkers.

mod brute_force;
mod histories;
mod long;
mod reference;
mod together;
