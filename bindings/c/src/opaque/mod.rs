//! The functions of `c_api_opaque.h`: the graph for custom ops and delegates that do not depend on layouts.

pub(crate) mod builder;
pub(crate) mod context;
pub(crate) mod node;
pub(crate) mod strings;
pub(crate) mod tensor;
