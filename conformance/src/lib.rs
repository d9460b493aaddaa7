//! Proves any Delegraph delegate right, or shows where it is wrong.

pub mod author;
pub mod cases;
pub mod compare;
pub mod contract;
pub mod corpus;
pub mod engine;
pub mod expectations;
pub mod goldens;
pub mod harness;
pub mod npy;
pub mod report;
