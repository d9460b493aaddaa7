//! Proves any Delegraph delegate right, or shows where it is wrong.

pub mod author;
pub mod cases;
pub mod compare;
pub mod corpus;
pub mod goldens;
pub mod npy;
