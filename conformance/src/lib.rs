//! Proves any Delegraph delegate right, or shows where it is wrong.
